#!/usr/bin/env python3
"""Tests fault_verdicts.py: what it makes of what ranks have written. A fault at 100 s, healed at 103 s."""

import sys
import unittest

sys.dont_write_bytecode = True  # the tree stays as it was

from fault_verdicts import (Job, Part, Seen, Told, detection_seconds, judge, judge_detection, names,
                            percentile)

AT, HEALED = 100.0, 103.0
TOLD = Told(3.0, {"node02"}, {2, 3})


def record(what, at, **more):
    return {"what": what, "at": int(at * 1e9), "life": 1, **more}


def error(at, op="small", begun=99.9, code=-203, text="rank 2 on node02 was lost", culprit=2):
    return record("error", at, op=op, begun=int(begun * 1e9), code=code, name=str(code), text=text,
                  culprit=culprit)


def progress(at, local=1, **waiting):
    return record("progress", at, counts={"local": local, "small": 1},
                  waiting={op: int(begun * 1e9) for op, begun in waiting.items()})


class Verdicts(unittest.TestCase):
    def letters(self, *records, part=None, quiet="d", number=0, well=104.0, crashed=""):
        seen = Seen(number, list(records), well, crashed)
        return "".join(sorted({letter for letter, _, _ in judge(part, [seen], AT, HEALED, quiet)}))

    def told(self, *records, **more):
        return self.letters(*records, part=Part({0: TOLD}), **more)

    def test_who_hears_in_time_with_error_and_name_is_content(self):
        self.assertEqual(self.told(progress(99.9), error(101.4), error(101.5, "large")), "")
        self.assertEqual(self.told(error(101.4, text="ranks 2-3 were lost", culprit=-1)), "")

    def test_who_hears_nothing_late_or_wrongly_is_not(self):
        self.assertEqual(self.told(progress(101)), "b")
        self.assertEqual(self.told(error(103.1)), "b")
        self.assertEqual(self.told(error(101, code=-202)), "b")
        self.assertEqual(self.told(error(101, text="node01 was lost")), "b")
        self.assertEqual(self.told(error(101, culprit=1)), "b")

    def test_times_may_have_slack(self):
        for at, slack, letters in ((103.1, 1, "b"), (103.1, 2, ""), (106.1, 2, "b")):
            seen = Seen(0, [error(at)], 107.0)
            self.assertEqual("".join(letter for letter, _, _ in
                                     judge(Part({0: TOLD}), [seen], AT, HEALED, "d", slack)), letters)

    def test_what_was_begun_before_must_not_hang(self):
        self.assertEqual(self.told(error(101), error(103.5, "large")), "b")
        self.assertEqual(self.told(error(101), progress(103.5, large=99.0)), "b")
        self.assertEqual(self.told(error(101), error(109.5, "large", begun=101.5, code=-202)), "")
        self.assertEqual(self.told(error(101), progress(103.5, large=101.5)), "")
        self.assertEqual(self.told(error(101), error(102, begun=101.5, code=-201)), "b")

    def test_a_wrong_result_is_never_right(self):
        wrong = record("wrong", 99, op="small", text="word 1 is 2")
        self.assertEqual(self.letters(wrong), "a")
        self.assertEqual(self.told(wrong, error(101)), "a")

    def test_local_work_goes_on(self):
        self.assertEqual(self.told(error(101), error(102, "local")), "c")
        self.assertEqual(self.told(error(101), error(102, "local run")), "c")
        self.assertEqual(self.told(error(101), progress(101.2, 5), progress(102.9, 5)), "c")
        self.assertEqual(self.told(error(101), progress(101.2, 5), progress(102.9, 6)), "")
        excused = Part({0: TOLD}, local_may_fail={0})
        self.assertEqual(self.letters(error(101), error(102, "local"), part=excused), "")

    def test_who_loses_a_rank_of_its_node_may_hear_of_it_from_any_operation(self):
        part = Part({0: TOLD}, local_may_fail={0})
        later = error(109, begun=101.1, code=-202)
        self.assertEqual(self.letters(error(101, "local run"), later, part=part), "")
        self.assertEqual(self.letters(error(101, "local run", code=-202), later, part=part), "b")
        self.assertEqual(self.told(error(101, "local run"), later), "bc")

    def test_who_has_nothing_to_do_with_it_notices_nothing(self):
        self.assertEqual(self.letters(progress(101)), "")
        for quiet in "dfg":
            self.assertEqual(self.letters(error(101), quiet=quiet), quiet)
            self.assertEqual(self.letters(progress(101), quiet=quiet, well=None), quiet)
            ended = record("ended", 101, op="wait", code=-303, name="", text="")
            self.assertEqual(self.letters(ended, quiet=quiet), quiet)

    def test_all_works_again_and_survivors_keep_their_sessions(self):
        self.assertEqual(self.told(error(101), well=None), "e")
        ended = record("ended", 102, op="wait", code=-304, name="", text="")
        self.assertEqual(self.told(error(101), ended), "e")
        self.assertEqual(self.told(error(101), error(105, begun=104.5)), "e")

    def test_the_side_that_is_given_up_may_lose_its_sessions(self):
        ended = record("ended", 102, op="wait", code=-304, name="", text="")
        part = Part({0: TOLD}, may_leave={0}, sides=[{0}, {1}])
        self.assertEqual(self.letters(ended, part=part), "")
        late = record("ended", 103.5, op="wait", code=-304, name="", text="")
        self.assertEqual(self.letters(late, part=part), "b")
        self.assertEqual(self.letters(error(101), ended, part=Part({0: TOLD}, may_leave={0}, sides=[{0}])),
                         "e")

    def test_who_loses_its_engine_hears_so(self):
        part = Part(bereft={0})
        self.assertEqual(self.letters(part=part), "b")
        for at, code, letters in ((100.5, -303, ""), (101.5, -303, "b"), (100.5, -304, "b")):
            ended = record("ended", at, op="wait", code=code, name="", text="")
            self.assertEqual(self.letters(ended, part=part), letters)

    def test_nothing_else_happens(self):
        self.assertEqual(self.letters(crashed="its process ended with -11"), "h")
        self.assertEqual(self.told(error(101), record("refused", 102, op="small", name="", text="")), "h")


class Parts(unittest.TestCase):
    def test_names_are_those_of_nodes_and_ranks(self):
        for text, named in (("node02 was lost", True), ("node021 was lost", False), ("rank 3 died", True),
                            ("ranks 0, 2 are missing", True), ("ranks 1-2 are missing", True),
                            ("rank 1 died, 3 remain", False), ("", False)):
            self.assertEqual(names(text, TOLD), named, text)
        self.assertTrue(names("", Told(1.0)))

    def test_a_job_knows_its_nodes(self):
        job = Job("train", ["node01", "node02", "node03"], 2)
        self.assertEqual(job.size(), 6)
        self.assertEqual(job.node_of(3), "node02")
        self.assertEqual(job.ranks_on({"node01", "node03"}), {0, 1, 4, 5})

    def test_detection_is_counted_from_the_fault(self):
        seen = [Seen(0, [error(101.5)]), Seen(1, [error(101.0)])]
        part = Part({0: TOLD, 1: Told(1.0)})
        self.assertEqual(list(detection_seconds(part, seen, AT, 3.0)), [1.5])
        self.assertEqual(list(detection_seconds(part, seen, AT, 1.0)), [1.0])
        self.assertEqual(list(detection_seconds(None, seen, AT, 3.0)), [])

    def test_one_late_moment_in_a_hundred_is_allowed(self):
        quick, late = [1.5] * 198, [2.3] * 2
        self.assertEqual(list(judge_detection({"one": quick + late[:1], "two": [1.4] * 2})), [])
        self.assertEqual(list(judge_detection({"two": [2.9] * 2})), [])
        found = list(judge_detection({"one": quick[:98] + late, "two": quick}))
        self.assertEqual(len(found), 1)
        self.assertIn("one", found[0][1])
        found = list(judge_detection({"one": quick[:95], "two": quick[:95], "three": late}))
        self.assertEqual(len(found), 1)
        self.assertIn("together", found[0][1])

    def test_percentiles(self):
        self.assertEqual([percentile(range(100), percent) for percent in (50, 99, 100)], [50, 99, 99])
        self.assertEqual(percentile([7], 50), 7)


if __name__ == "__main__":
    unittest.main()
