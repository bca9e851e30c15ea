def names(c): return []
def between_hosts(): return []
