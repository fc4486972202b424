/* NLM version 4: locks of two hosts and two processes on one file. */
#include <string.h>
#include <time.h>

#include "check.h"

#define PATIENCE_MS 10000
#define STEP_MS 50

static struct handle file;

static struct range
range_of(const char *host, uint32_t process, uint64_t offset, uint64_t length)
{
	struct range range = {.file = &file, .host = host, .owner = host, .process = process,
			      .offset = offset, .length = length};

	return range;
}

static struct range
one(uint64_t offset, uint64_t length)
{
	return range_of("one", 11, offset, length);
}

static struct range
two(uint64_t offset, uint64_t length)
{
	return range_of("two", 22, offset, length);
}

static void
check_exclusion(void)
{
	check_lock("TEST of what nobody holds", nlm_test(one(0, 10), true), NLM4_GRANTED);
	check_lock("LOCK", nlm_lock(one(0, 10), true, false, false), NLM4_GRANTED);
	check_lock("TEST by the holder", nlm_test(one(0, 10), true), NLM4_GRANTED);
	check_lock("TEST of what another holds", nlm_test(two(5, 10), false), NLM4_DENIED);
	check(got.holder.exclusive && got.holder.svid == 11 && got.holder.l_offset == 0 &&
		      got.holder.l_len == 10,
	      "TEST: the holder's process %u and range %llu+%llu", got.holder.svid,
	      (unsigned long long)got.holder.l_offset, (unsigned long long)got.holder.l_len);
	check_lock("LOCK of what another holds", nlm_lock(two(5, 10), true, false, false), NLM4_DENIED);
	check_lock("LOCK shared of what another holds", nlm_lock(two(5, 10), false, false, false),
		   NLM4_DENIED);
	check_lock("LOCK beside it", nlm_lock(two(10, 10), true, false, false), NLM4_GRANTED);
	check_lock("LOCK again by the holder", nlm_lock(one(2, 3), true, false, false), NLM4_GRANTED);
	check_lock("LOCK by another process of the host",
		   nlm_lock(range_of("one", 12, 0, 1), true, false, false), NLM4_DENIED);
	check_lock("LOCK by a process of the same number on another host",
		   nlm_lock(range_of("two", 11, 0, 1), true, false, false), NLM4_DENIED);
	check_lock("UNLOCK", nlm_unlock(one(0, 10)), NLM4_GRANTED);
	check_lock("UNLOCK of what is not held", nlm_unlock(one(500, 10)), NLM4_GRANTED);
	check_lock("UNLOCK of what another holds", nlm_unlock(one(10, 10)), NLM4_GRANTED);
	check_lock("TEST after that", nlm_test(one(10, 1), true), NLM4_DENIED);
	check_lock("LOCK of what is free again", nlm_lock(two(0, 10), true, false, false),
		   NLM4_GRANTED);
	check_lock("UNLOCK of all", nlm_unlock(two(0, 0)), NLM4_GRANTED);
	check_lock("TEST after UNLOCK of all", nlm_test(one(0, 0), true), NLM4_GRANTED);
}

static void
check_ranges(void)
{
	uint64_t far = (uint64_t)1 << 62;

	check_lock("LOCK shared", nlm_lock(one(0, 100), false, false, false), NLM4_GRANTED);
	check_lock("LOCK shared by two", nlm_lock(two(50, 100), false, false, false), NLM4_GRANTED);
	check_lock("LOCK exclusive of what two share", nlm_lock(one(60, 10), true, false, false),
		   NLM4_DENIED);
	check_lock("LOCK exclusive of the own part", nlm_lock(one(0, 50), true, false, false),
		   NLM4_GRANTED);
	check_lock("LOCK of what became exclusive", nlm_lock(two(49, 1), false, false, false),
		   NLM4_DENIED);
	check_lock("LOCK shared again", nlm_lock(one(0, 50), false, false, false), NLM4_GRANTED);
	check_lock("LOCK shared of what is shared again", nlm_lock(two(49, 1), false, false, false),
		   NLM4_GRANTED);
	check_lock("UNLOCK of all", nlm_unlock(two(0, 0)), NLM4_GRANTED);
	check_lock("LOCK exclusive of all", nlm_lock(one(0, 100), true, false, false), NLM4_GRANTED);
	check_lock("UNLOCK of the middle", nlm_unlock(one(40, 20)), NLM4_GRANTED);
	check_lock("LOCK of the middle", nlm_lock(two(40, 20), true, false, false), NLM4_GRANTED);
	check_lock("LOCK before the middle", nlm_lock(two(39, 1), true, false, false), NLM4_DENIED);
	check_lock("LOCK after the middle", nlm_lock(two(60, 1), true, false, false), NLM4_DENIED);
	check_lock("LOCK to the end", nlm_lock(one(1000, 0), true, false, false), NLM4_GRANTED);
	check_lock("LOCK far behind", nlm_lock(two(far, 1), true, false, false), NLM4_DENIED);
	check_lock("TEST far behind", nlm_test(two(far, 1), true), NLM4_DENIED);
	check(got.holder.l_offset == 1000 && got.holder.l_len == 0,
	      "TEST far behind: a range without an end");
	check_lock("UNLOCK of all", nlm_unlock(one(0, 0)), NLM4_GRANTED);
	check_lock("UNLOCK of all", nlm_unlock(two(0, 0)), NLM4_GRANTED);
}

/* A client that was told to wait asks again. Gives the last status. */
static int
ask_until_granted(struct range range)
{
	const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
	int status = NLM4_BLOCKED;

	for (int waited = 0; waited < PATIENCE_MS && status != NLM4_GRANTED; waited += STEP_MS) {
		status = nlm_lock(range, true, true, false);
		if (status != NLM4_GRANTED)
			nanosleep(&step, NULL);
	}
	return status;
}

static void
check_waiting(void)
{
	check_lock("LOCK", nlm_lock(one(0, 10), true, true, false), NLM4_GRANTED);
	check_lock("LOCK that waits", nlm_lock(two(0, 10), true, true, false), NLM4_BLOCKED);
	check_lock("LOCK that waits, sent again", nlm_lock(two(0, 10), true, true, false),
		   NLM4_BLOCKED);
	check_lock("UNLOCK under one who waits", nlm_unlock(one(0, 10)), NLM4_GRANTED);
	check_lock("LOCK that waited", ask_until_granted(two(0, 10)), NLM4_GRANTED);
	check_lock("LOCK of what was waited for", nlm_lock(one(0, 10), true, false, false),
		   NLM4_DENIED);
	check_lock("LOCK that waits", nlm_lock(one(0, 10), true, true, false), NLM4_BLOCKED);
	check_lock("CANCEL", nlm_cancel(one(0, 10), true, true), NLM4_GRANTED);
	nlm_cancel(one(300, 10), true, true);
	check(got.status == NLM4_DENIED || got.status == NLM4_GRANTED,
	      "CANCEL of what does not wait: answered");
	check_lock("UNLOCK", nlm_unlock(two(0, 10)), NLM4_GRANTED);
	check_lock("LOCK of what nobody waits for", nlm_lock(two(0, 10), true, false, false),
		   NLM4_GRANTED);
	check_lock("UNLOCK", nlm_unlock(two(0, 10)), NLM4_GRANTED);

	check_lock("LOCK of the first", nlm_lock(one(0, 1), true, false, false), NLM4_GRANTED);
	check_lock("LOCK of the second", nlm_lock(two(1, 1), true, false, false), NLM4_GRANTED);
	check_lock("LOCK that waits for the second", nlm_lock(one(1, 1), true, true, false),
		   NLM4_BLOCKED);
	nlm_lock(two(0, 1), true, true, false);
	check(got.status == NLM4_DEADLCK || got.status == NLM4_BLOCKED || got.status == NLM4_DENIED,
	      "LOCK that waits for who waits for it: not given");
	nlm_cancel(two(0, 1), true, true);
	check_lock("UNLOCK", nlm_unlock(two(0, 0)), NLM4_GRANTED);
	check_lock("LOCK that waited for the second", ask_until_granted(one(1, 1)), NLM4_GRANTED);
	check_lock("UNLOCK of all", nlm_unlock(one(0, 0)), NLM4_GRANTED);
	check_lock("LOCK when all is over", nlm_lock(two(0, 0), true, false, false), NLM4_GRANTED);
	check_lock("UNLOCK of all", nlm_unlock(two(0, 0)), NLM4_GRANTED);
}

static void
check_lock_refusals(void)
{
	struct handle gone = stale(&session.dir, false), bad = bad_handle();
	struct range lost = one(0, 10), wrong = one(0, 10);

	lost.file = &gone;
	wrong.file = &bad;
	check_lock("TEST of a removed file", nlm_test(lost, true), NLM4_STALE_FH);
	check_lock("LOCK of a removed file", nlm_lock(lost, true, false, false), NLM4_STALE_FH);
	check_lock("LOCK of no handle at all", nlm_lock(wrong, true, false, false), NLM4_STALE_FH);
	check_lock("TEST of no handle at all", nlm_test(wrong, true), NLM4_STALE_FH);
	nlm_lock(one(UINT64_MAX - 5, 100), true, false, false);
	check(got.status == NLM4_FBIG || got.status == NLM4_FAILED ||
		      got.status == NLM4_DENIED_NOLOCKS,
	      "LOCK of a range over 2^64: refused");
	nlm_lock(one(0, 10), true, false, true);
	check(got.status == NLM4_GRANTED || got.status == NLM4_DENIED_GRACE_PERIOD,
	      "LOCK claimed again when there is nothing to claim: answered");
	nlm_unlock(one(0, 0));
}

void
check_locks(void)
{
	if (!session.locks)
		return;
	file = make_file(&session.dir, "locked", "text");
	check(nlm_null() == 0, "NLM NULL");
	check_exclusion();
	check_ranges();
	check_waiting();
	check_lock_refusals();
	WANT("REMOVE of a file that was locked", NFS3_OK, remove_from(&session.dir, "locked"));
}
