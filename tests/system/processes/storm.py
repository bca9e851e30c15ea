#!/usr/bin/env python3
"""Handshakes of strangers against a running job: storm.py WORKER [COUNT [SEED [encrypted] [wire]]].

Random bytes, truncated and replayed greetings, proofs of another token, and, with the right token (a
job that got none has one that everybody can make), frames that are nonsense, too long or of a rank
that is there already. If the job is encrypted: TLS without its key, plain greetings, and first words of a rank that
were recorded, whole, cut, altered, or of another token. With `wire` they come to the socket of rank 0's at which ranks of other
hosts connect for messages: hellos that are cut, of ranks and streams that there are not, with a guess for a proof, with the proof that they
were given, or with one of an earlier connection. Meanwhile three ranks run checked all_reduces. They must end well, and rank 0's
memory and descriptors must be as they were after the first tenth.
"""
import hashlib
import hmac
import os
import random
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time

import run

MAGIC = b"SPRAT\r\n\x01"
STREAM_VERSION = 2  # of comm/transports/sockets/handshake.cpp
TOKEN = "a token of sixteen and more"
THREADS = 4
GROWTH_KIB = 2048  # of the allocator, over any number of handshakes


def prove(token, side, hub_nonce, rank_nonce):
    return hmac.new(token, side + hub_nonce + rank_nonce, hashlib.sha256).digest()


def frame(body):
    return struct.pack("<I", len(body)) + body


def hello(rank, size):
    return frame(b"\0" + struct.pack("<iiI", rank, size, 0))


class Storm:
    def __init__(self, port):
        self.address = ("127.0.0.1", port)
        self.token = f"sprat port {port} job ".encode()
        self.recorded = []  # what proved itself once, to be replayed

    def read(self, connection, count):
        data = b""
        while len(data) < count:
            more = connection.recv(count - len(data))
            if not more:
                raise ConnectionError("the hub has closed")
            data += more
        return data

    def greet(self, connection, nonce, token):
        connection.sendall(MAGIC + nonce)
        answer = self.read(connection, 8 + 16 + 32)
        return prove(token, b"r", answer[8:24], nonce)

    def random_bytes(self, connection, dice):
        connection.sendall(dice.randbytes(dice.randrange(1, 200)))

    def truncated(self, connection, dice):
        nonce = dice.randbytes(16)
        proof = self.greet(connection, nonce, self.token)
        connection.sendall(proof[:dice.randrange(32)])

    def wrong_token(self, connection, dice):
        connection.sendall(self.greet(connection, dice.randbytes(16), b"guess") + hello(1, 3))

    def replayed(self, connection, dice):
        if not self.recorded:
            nonce = dice.randbytes(16)
            self.recorded.append((nonce, self.greet(connection, nonce, self.token)))
            return
        nonce, proof = self.recorded[0]
        self.greet(connection, nonce, self.token)
        connection.sendall(proof + hello(1, 3))
        if connection.recv(1):
            raise AssertionError("the hub took a replayed proof")

    def proved(self, connection, dice):
        connection.sendall(self.greet(connection, dice.randbytes(16), self.token))
        connection.sendall(dice.choice([
            hello(1, 3), hello(7, 3), hello(1, 9), frame(dice.randbytes(dice.randrange(100))),
            struct.pack("<I", dice.randrange(1 << 17, 1 << 32)) + dice.randbytes(50), dice.randbytes(3)]))

    def silent(self, connection, dice):
        pass

    def must_end(self, connection, most=1 << 30):
        """The other end closes, having said no more than so many bytes."""
        heard = 0
        while more := connection.recv(1 << 16):
            heard += len(more)
        if heard > most:
            raise AssertionError(f"a stranger hears {heard} bytes")

    def other_user(self):
        """What the hub answers to another user's process that proves the token and says it is rank 1."""
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                os.write(theirs, self.knock())
            except Exception as error:
                os.write(theirs, repr(error).encode())
            finally:
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, "rb") as answer:
            text = answer.read()
        os.waitpid(child, 0)
        return text

    def knock(self):
        with socket.socket() as connection:
            connection.settimeout(30)
            connection.connect(self.address)
            connection.sendall(self.greet(connection, os.urandom(16), self.token) + hello(1, 3))
            return connection.recv(1 << 16)

    def kinds(self):
        return [self.random_bytes, self.truncated, self.wrong_token, self.replayed, self.proved, self.silent]

    def run(self, count, seed):
        dice = random.Random(seed)
        for _ in range(count):
            with socket.socket() as connection:
                connection.settimeout(30)
                # Ended by a reset, so that no port stays occupied.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.connect(self.address)
                try:
                    dice.choice(self.kinds())(connection, dice)
                except (ConnectionError, BrokenPipeError, ssl.SSLError):
                    pass

    def rage(self, count, seed):
        failures = []

        def work(at):
            try:
                self.run(count // THREADS, seed + at)
            except Exception as error:  # shown below; the thread's own report would be lost
                failures.append(repr(error))

        threads = [threading.Thread(target=work, args=(at,)) for at in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            print("FAILED:", failures)
            sys.exit(1)


class EncryptedStorm(Storm):
    """Nobody here has the key: Python's ssl knows none of this kind. So what ranks say first is recorded."""

    def __init__(self, port, worker):
        super().__init__(port)
        self.hellos = [first_words(worker, token) for token in (TOKEN, "a token of another job")]

    def plain(self, connection, dice):
        connection.sendall(MAGIC + dice.randbytes(16))
        answer = self.read(connection, 8 + 16 + 32)
        if answer != b"SPRAT\r\n\x03" + bytes(48):
            raise AssertionError(f"a plain rank is answered {answer}")
        self.must_end(connection)

    def without_key(self, connection, dice):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if dice.randrange(2):
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        with context.wrap_socket(connection):
            raise AssertionError("TLS stands without the key")

    def replayed(self, connection, dice):
        connection.sendall(self.hellos[0])
        if connection.recv(1) != b"\x16":
            raise AssertionError("the hello of a rank is not understood")
        connection.sendall(b"\x17\x03\x03" + struct.pack(">H", 100) + dice.randbytes(100))
        self.must_end(connection)

    def cut(self, connection, dice):
        connection.sendall(self.hellos[0][:dice.randrange(1, len(self.hellos[0]))])

    def altered(self, connection, dice):
        hello = bytearray(self.hellos[0])
        at = dice.randrange(len(hello))
        hello[at] ^= 1 << dice.randrange(8)
        connection.sendall(hello)
        if at >= 5:  # else the hub may wait for the rest of a longer record
            self.leave_or_hear(connection, dice)

    def of_another_job(self, connection, dice):
        connection.sendall(self.hellos[1])
        self.leave_or_hear(connection, dice)
        self.must_end(connection)

    def leave_or_hear(self, connection, dice):
        """Half of them go as soon as the hub answers: their end must not be taken for the next one's."""
        if dice.randrange(2):
            connection.recv(1)
            raise ConnectionError("heard enough")

    def kinds(self):
        return [self.random_bytes, self.plain, self.without_key, self.replayed, self.cut, self.altered,
                self.of_another_job, self.silent]


class WireStorm(Storm):
    """At the socket where other hosts' ranks connect. Nobody here has the key of a pair, which ranks have told each other."""

    def __init__(self, pid):
        super().__init__(0)
        self.address = listener_of(pid, self.hello(bytes(16)), lambda answer: len(answer) == 48)

    @staticmethod
    def hello(nonce, sender=1, to=0, stream=0, version=STREAM_VERSION):
        return b"SPRAT\r\n\x02" + struct.pack("<IIII", version, sender, to, stream) + nonce

    def cut(self, connection, dice):
        connection.sendall(self.hello(dice.randbytes(16))[:dice.randrange(1, 40)])

    def of_nobody(self, connection, dice):
        wrong = dice.choice([{"sender": 7}, {"sender": 0}, {"to": 2}, {"stream": 1 << 20},
                             {"version": STREAM_VERSION + 1}, {"sender": 0xffffffff}])
        connection.sendall(self.hello(dice.randbytes(16), **wrong))
        self.must_end(connection, 0)

    def challenged(self, connection, dice):
        connection.sendall(self.hello(dice.randbytes(16)))
        return self.read(connection, 48)

    def guessed(self, connection, dice):
        self.challenged(connection, dice)
        connection.sendall(dice.randbytes(32) + dice.randbytes(dice.randrange(100)))
        self.must_end(connection, 0)

    def reflected(self, connection, dice):
        connection.sendall(self.challenged(connection, dice)[16:])
        self.must_end(connection, 0)

    def replayed(self, connection, dice):
        heard = self.challenged(connection, dice)
        self.recorded = [*self.recorded[-99:], heard[16:]]
        connection.sendall(dice.choice(self.recorded))
        self.must_end(connection, 0)

    def kinds(self):
        return [self.random_bytes, self.cut, self.of_nobody, self.guessed, self.reflected, self.replayed, self.silent]


class EncryptedWireStorm(WireStorm):
    ALERT_BYTES = 7

    def __init__(self, pid):
        Storm.__init__(self, 0)
        self.address = listener_of(pid, MAGIC + bytes(16), lambda answer: not answer.startswith(MAGIC[:7]))

    def plain(self, connection, dice):
        connection.sendall(self.hello(dice.randbytes(16)))
        self.must_end(connection, self.ALERT_BYTES)

    without_key = EncryptedStorm.without_key

    def like_tls(self, connection, dice):
        # No hello: for the rest of a long one the rank would wait.
        kind = bytes([dice.choice([0, 2, 4, 11, 20, 255])])
        connection.sendall(b"\x16\x03\x01" + struct.pack(">H", 200) + kind + dice.randbytes(199))
        self.must_end(connection, self.ALERT_BYTES)

    def kinds(self):
        return [self.random_bytes, self.cut, self.plain, self.without_key, self.like_tls, self.silent]


def listener_of(pid, words, is_it):
    """Where a process listens and answers these words as it should."""
    sockets = {os.readlink(entry.path)[8:-1] for entry in os.scandir(f"/proc/{pid}/fd")
               if os.readlink(entry.path).startswith("socket:[")}
    seen = []
    with open(f"/proc/{pid}/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    for row in rows:
        if row[3] != "0A" or row[9] not in sockets:
            continue
        host, port = row[1].split(":")
        address = (socket.inet_ntoa(struct.pack("<I", int(host, 16))), int(port, 16))
        with socket.create_connection(address, timeout=5) as connection:
            connection.sendall(words)
            answer = b""
            try:
                while len(answer) < 48 and (more := connection.recv(1 << 16)):
                    answer += more
            except (ConnectionError, TimeoutError):
                pass
        seen.append((address, answer))
        if is_it(answer):
            return address
    raise AssertionError(f"process {pid} has no socket for other hosts: {seen}")


def first_words(worker, token):
    """What a rank with this token says to whoever listens where its rank 0 should."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(30)
        port = listener.getsockname()[1]
        rank = run.start([worker, "until", "/"], ranks=3, skip=(0, 2), port=port, SPRAT_ENCRYPT="1", SPRAT_TOKEN=token)[1]
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(30)
                words = connection.recv(1 << 16)
                while len(words) < 5 + int.from_bytes(words[3:5], "big"):
                    words += connection.recv(1 << 16)
                return words
        finally:
            rank.kill()
            rank.communicate()


def usage(pid):
    """Resident KiB and descriptors, once every stranger's connection is gone."""
    fds = -1
    for _ in range(60):
        before, fds = fds, len(os.listdir(f"/proc/{pid}/fd"))
        if before == fds:
            break
        time.sleep(0.5)
    with open(f"/proc/{pid}/status") as file:
        # Of its own: pages shared with the other ranks come as they are touched.
        resident = sum(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))
    return resident, fds


def main():
    worker = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    encrypted, wire = "encrypted" in sys.argv[4:], "wire" in sys.argv[4:]
    settings = {"SPRAT_ENCRYPT": "1", "SPRAT_TOKEN": TOKEN} if encrypted else {}
    if wire:
        settings.update(hosts="a,b,c", SPRAT_PROVIDER="sockets", SPRAT_INTERFACE="lo")
    with tempfile.TemporaryDirectory() as folder:
        stop = os.path.join(folder, "stop")
        port = run.free_port()
        # What is freed under a sanitizer stays resident up to its quarantine's size.
        processes = run.start([worker, "until", stop], ranks=3, port=port,
                              ASAN_OPTIONS="quarantine_size_mb=0:thread_local_quarantine_size_kb=0", **settings)
        try:
            for process in processes.values():
                process.stdout.readline()
            if wire:
                storm = (EncryptedWireStorm if encrypted else WireStorm)(processes[0].pid)
            else:
                storm = EncryptedStorm(port, worker) if encrypted else Storm(port)
            if os.geteuid() == 0 and not encrypted and not wire:
                answer = storm.other_user()
                if b"SPRAT_TOKEN" not in answer or b"65534" not in answer:
                    run.fail(f"storm: another user is answered {answer}", "", run.collect(processes, 0.1))
            storm.rage(count // 10, seed)
            before = usage(processes[0].pid)
            begin = time.monotonic()
            storm.rage(count - count // 10, seed + THREADS)
            seconds = time.monotonic() - begin
            after = usage(processes[0].pid)
            open(stop, "w").close()
            results = run.collect(processes, 20)
        finally:
            for process in processes.values():
                process.kill()  # whatever went wrong here, nobody spins on
    if any(status != 0 for status, _, _ in results.values()):
        run.fail("storm", "the job did not go on", results)
    print(f"{count} handshakes, the last {count - count // 10} in {seconds:.1f} s; rank 0's private memory "
          f"{before[0]} -> {after[0]} KiB, descriptors {before[1]} -> {after[1]}")
    if after[0] > before[0] + GROWTH_KIB or after[1] > before[1]:
        run.fail("storm", "rank 0 has grown", results)
    print("ok storm")


if __name__ == "__main__":
    main()
