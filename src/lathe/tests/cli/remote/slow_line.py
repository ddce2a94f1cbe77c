#!/usr/bin/env python3
"""Joins two interfaces by a line that is slow and loses frames, where the kernel has no netem.

    slow_line.py A B DELAY_MS ONE_OF SEED COUNTS

A frame that comes in at one interface goes out at the other DELAY_MS later. Of every ONE_OF frames that go a way one is lost, drawn
by SEED. COUNTS is a file that tells, from the start and then once a second, how many frames and bytes came to go each way and how
many were lost. Ends when its input is closed. Standard library only; root.
"""

import collections
import json
import os
import random
import selectors
import socket
import sys
import time

SOL_PACKET, PACKET_VNET_HDR = 263, 15
# Behind this header the kernel says of a frame whether its checksum is still to be made; it must come back with the frame.
HEADER_BYTES = 10
LARGEST = 70_000


class Way:
    """From one interface to the other."""

    def __init__(self, source, sink, delay, one_of, seed):
        self.source, self.sink, self.delay, self.one_of = source, sink, delay, one_of
        self.random = random.Random(seed)
        self.waiting = collections.deque()
        self.frames = self.bytes = self.lost = 0
        self.loses = 0

    def take(self, now):
        while True:
            try:
                frame, address = self.source.recvfrom(LARGEST)
            except BlockingIOError:
                return
            except OSError:
                return  # The interface is down.
            if address[2] == socket.PACKET_OUTGOING:
                continue
            place = self.frames % self.one_of
            if place == 0:
                self.loses = self.random.randrange(self.one_of)
            self.frames += 1
            self.bytes += len(frame) - HEADER_BYTES
            if place == self.loses:
                self.lost += 1
            else:
                self.waiting.append((now + self.delay, frame))

    def give(self, now):
        while self.waiting and self.waiting[0][0] <= now:
            frame = self.waiting.popleft()[1]
            try:
                self.sink.send(frame)
            except OSError:
                self.lost += 1

    def counts(self):
        return {"frames": self.frames, "bytes": self.bytes, "lost": self.lost}


def opened(interface):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sock.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    sock.setblocking(False)
    sock.bind((interface, 0))
    return sock


def main():
    first, second, delay_ms, one_of, seed, path = sys.argv[1:]
    a, b = opened(first), opened(second)
    delay = float(delay_ms) / 1e3
    there = Way(a, b, delay, int(one_of), int(seed))
    back = Way(b, a, delay, int(one_of), int(seed) + 1)
    waiting = selectors.DefaultSelector()
    waiting.register(a, selectors.EVENT_READ, there)
    waiting.register(b, selectors.EVENT_READ, back)
    waiting.register(sys.stdin.buffer, selectors.EVENT_READ, None)
    told = float("-inf")
    while True:
        now = time.monotonic()
        if now - told >= 1:
            told = now
            with open(path + ".new", "w") as file:
                json.dump({"there": there.counts(), "back": back.counts()}, file)
            os.rename(path + ".new", path)
        due = [way.waiting[0][0] for way in (there, back) if way.waiting] + [told + 1]
        for key, _ in waiting.select(max(0, min(due) - now)):
            if key.data is None:
                if not os.read(sys.stdin.fileno(), 1):
                    return
            else:
                key.data.take(time.monotonic())
        now = time.monotonic()
        there.give(now)
        back.give(now)


main()
