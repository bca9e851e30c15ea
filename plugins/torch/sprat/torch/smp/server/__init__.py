"""The execution server: one rank's part of a module tree whose modules live on several ranks.

messages: what travels. wire: how. policy: which task runs next, pure. tasks: threads, one running
at a time. meetings: collectives that a rank which has failed will not join. remote: autograd's step onto
another rank. server: one step of one rank.
"""
