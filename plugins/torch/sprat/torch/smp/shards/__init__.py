"""What replicas share instead of keeping it each: parameters, blocks of them, an optimizer's state.

parameters: all of a rank's, gathered once a step. blocks: block by block, by FSDP2. optimizer_state: each
rank updates its share of the parameters. None of it is public."""
