#!/usr/bin/env python3
"""Whether somebody on the wire between two hosts can read what ranks send:

  hosts/run 2 1 -- overhear.py seen|hidden TALK

Rank 0 takes down every packet of its host's wire while TALK joins and broadcasts a block of 16 bytes over and over,
4 MiB and more each way. `seen`: it must find the block, and what ranks tell each other as they join, which shows that
it can. `hidden`: it must find neither, nor the token, which is nowhere to be found in any case.
"""
import os
import socket
import subprocess
import sys
import threading

RUN = 16  # bytes, of which no 16 in a row may be seen
LEAST = 4 << 20  # bytes that have to be heard
ETH_P_ALL = 3
block = bytes((37 * i + 11) % 256 for i in range(RUN))  # as talk.cpp has it


class Listener(threading.Thread):
    def __init__(self):
        super().__init__()
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self.socket.bind(("wire", 0))
        self.socket.settimeout(0.2)
        self.over = threading.Event()
        self.packets = []

    def run(self):
        while True:
            try:
                self.packets.append(self.socket.recv(1 << 17))
            except socket.timeout:
                if self.over.is_set():
                    return


wanted, talk = sys.argv[1], sys.argv[2]
listener = Listener() if os.environ["RANK"] == "0" else None
if listener:
    listener.start()
try:
    status = subprocess.run([talk], timeout=60).returncode
finally:
    if listener:
        listener.over.set()
        listener.join()
if status != 0:
    print(f"FAILED: rank {os.environ['RANK']} ended with {status}")
    sys.exit(1)
if listener:
    heard = b"".join(listener.packets)
    # Packets cut the run anywhere, so any turn of it counts.
    signs = {
        "what ranks send": any((block + block)[turn:turn + RUN] in heard for turn in range(RUN)),
        "what ranks tell as they join": b"sprat version" in heard,
        "the token": os.environ["SPRAT_TOKEN"].encode() in heard,
    }
    expected = {sign: wanted == "seen" and sign != "the token" for sign in signs}
    if signs != expected or len(heard) < LEAST:
        print(f"FAILED: of {len(heard)} bytes heard, {signs}; wanted {expected}")
        sys.exit(1)
    print(f"ok: {len(heard)} bytes were heard; found in them: {[sign for sign in signs if signs[sign]]}")
