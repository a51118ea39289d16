"""The numbers of the example's random.cpp: each is a function of seed, stream and position."""

import numpy as np

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB


def mixed(word):
    """The finaliser of SplitMix64, of one Python integer."""
    word = (word ^ word >> 30) * FIRST % WORD
    word = (word ^ word >> 27) * SECOND % WORD
    return word ^ word >> 31


def mixed_all(words):
    """Likewise, of an array of uint64, which wraps by itself."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(FIRST)
    words = (words ^ words >> np.uint64(27)) * np.uint64(SECOND)
    return words ^ words >> np.uint64(31)


class CounterRandom:
    def __init__(self, seed, stream):
        key = mixed((seed + GOLDEN) % WORD)
        for byte in stream.encode():
            key = mixed(key ^ (byte + GOLDEN))
        self.key = np.array([key], dtype=np.uint64)

    def bits(self, positions):
        counters = np.asarray(positions, dtype=np.uint64) + np.uint64(1)
        return mixed_all(self.key + np.uint64(GOLDEN) * counters)

    def uniforms(self, positions):
        return np.ldexp((self.bits(positions) >> np.uint64(11)).astype(np.float64), -53)

    def normals(self, count):
        """Of the positions from 0 on, by Box and Muller from two uniforms each."""
        pairs = self.uniforms(np.arange(2 * count, dtype=np.uint64)).reshape(count, 2)
        radius = np.sqrt(-2 * np.log(pairs[:, 0] + 2.0**-54))
        return radius * np.cos(2 * np.pi * pairs[:, 1])
