"""What `make fuzz` does a million times, two thousand times."""


def test_no_input_breaks_what_holds_for_all(fuzzer):
    for given in fuzzer.inputs(2000, seed=3):
        fuzzer.run(given)


def test_an_input_is_found_again_from_its_bytes(fuzzer):
    for given in fuzzer.inputs(1000, seed=3):
        assert fuzzer.Input.decoded(given.encoded()) == given
