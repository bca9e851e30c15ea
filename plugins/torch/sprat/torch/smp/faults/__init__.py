"""What goes wrong in a step: how it is found, what errors call it, and how all ranks come to raise it.

naming: ranks and modules in errors. agreement: what ranks decide alike. interrupts: Ctrl-C. held_tree: a model that is not
what was split. loss_path: a loss that leads nowhere.
"""
