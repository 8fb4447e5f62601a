from spade_jax.text.pieces import MAX_PIECE_CHARACTERS, candidate_pieces


def test_a_stretch_that_always_stands_in_the_same_surroundings_is_proposed():
    block = "def reset(self):\n    self.count = "
    candidates = candidate_pieces({block: 7, "end": 3})
    assert candidates[block] == 7
    assert candidates["    self.count = "] == 7
    assert candidates["reset(self)"] == 7
    assert candidates["cou"] == 7


def test_counts_add_up_over_segments_and_repeats_inside_one_count_once():
    assert candidate_pieces({"go up": 2, "up up": 3})["up"] == 5


def test_what_occurs_once_or_covers_little_is_not_proposed():
    candidates = candidate_pieces({"seldom": 2, "once": 1, "often " * 20: 1000})
    assert "seldom" not in candidates
    assert "once" not in candidates
    assert "often " in candidates


def test_no_candidate_is_longer_than_sentencepiece_allows():
    candidates = candidate_pieces({"x = 1\n" * 200: 5})
    assert max(map(len, candidates)) <= MAX_PIECE_CHARACTERS


def test_length_alone_does_not_make_a_piece():
    document = "Some long passage that only one document holds. " * 8
    assert document not in candidate_pieces({document: 2, "turn ": 400_000})
