"""Posts of about 500 bytes in six scripts, whose words are as frequent as those of languages (Zipf's law)."""

from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

WORDS, CHARACTERS, STREAMS = 60_000, 3000, 2000
ALPHABETS = {
    "latin": ("abcdefghijklmnoprstuvwz", 0.40),
    "cyrillic": ("абвгдежзиклмнопрстуфхчшыя", 0.25),
    "arabic": ("ابتثجحخدذرزسشصضطعغفقكلمنهوي", 0.10),
    "hebrew": ("אבגדהוזחטיכלמנסעפצקרשת", 0.05),
    # The rest is Chinese and Japanese.
}


@dataclass(frozen=True)
class Corpus:
    """The words of all posts, most frequent first, and a long series of places in them."""

    words: dict[str, list[str]]
    characters: list[str]
    picks: list[int]
    character_picks: list[int]

    def posts(self, count: int, seed: int = 1) -> Iterator[tuple[int, str]]:
        """Yield the number of a stream and a text."""
        chance = Random(seed)
        for _ in range(count):
            yield int(chance.paretovariate(0.8)) % STREAMS, self._text(chance)

    def _text(self, chance: Random) -> str:
        share = chance.random()
        for words, (_, part) in zip(self.words.values(), ALPHABETS.values(), strict=True):
            if share < part:
                start = chance.randrange(len(self.picks) - 80)
                return " ".join(words[place] for place in self.picks[start : start + chance.randrange(40, 75)])
            share -= part
        start = chance.randrange(len(self.character_picks) - 130)
        places = self.character_picks[start : start + chance.randrange(60, 120)]
        kana = share > 0.1
        return "".join(
            "。"
            if number % 15 == 14
            else chr(0x3041 + place % 80)
            if kana and number % 3 == 0
            else self.characters[place]
            for number, place in enumerate(places)
        )


def make_corpus(seed: int = 7) -> Corpus:
    """Return words made of random letters; the same ones for the same seed."""
    chance = Random(seed)
    words = {name: _words(chance, letters) for name, (letters, _) in ALPHABETS.items()}
    characters = [chr(0x4E00 + number) for number in range(CHARACTERS)]
    chance.shuffle(characters)
    return Corpus(words, characters, _picks(chance, WORDS, 1_000_000), _picks(chance, CHARACTERS, 500_000))


def _words(chance: Random, letters: str) -> list[str]:
    # In the order in which they were made, which is the same in each process; that of a set is not.
    found: dict[str, None] = {}
    while len(found) < WORDS:
        found["".join(chance.choices(letters, k=chance.randrange(2, 11)))] = None
    # Frequent words are short, on the whole.
    return sorted(found, key=lambda word: chance.random() * len(word))


def _picks(chance: Random, kinds: int, count: int) -> list[int]:
    sums = list(accumulate(1 / (place + 2.7) ** 1.05 for place in range(kinds)))
    return [bisect(sums, chance.random() * sums[-1]) for _ in range(count)]
