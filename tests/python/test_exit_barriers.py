"""The barrier that usmq adds at exit to queues of other libraries leaves memory sound."""

PROGRAM = """
import dpctl
import usmq

x = usmq.zeros(16, "i4")
add = usmq.elementwise("int *x", "x[i] += 1")
for _ in range(30):
    theirs = dpctl.SyclQueue()
    add(x, queue=theirs)
    del theirs
print(x.to_numpy().tolist() == [30] * 16)
"""


def test_a_process_with_foreign_queues_in_use_ends_with_its_own_status(run_python):
    for _ in range(3):
        assert run_python(PROGRAM).stdout == "True\n"
