/* READ, WRITE and COMMIT. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "wire.h"

#define ODD 1000003
#define GATHERED (8 << 20)

static char *
pattern(uint32_t length)
{
	char *bytes = malloc(length);

	if (bytes == NULL)
		die("no memory");
	for (uint32_t each = 0; each < length; each++)
		bytes[each] = (char)(each * 2654435761u >> 13);
	return bytes;
}

static bool
reads(const struct handle *file, uint64_t offset, const char *wanted, uint32_t length)
{
	return read_at(file, offset, length) == NFS3_OK && got.length == length &&
	       got.count == length && memcmp(got.bytes, wanted, length) == 0;
}

static void
check_read(void)
{
	struct handle file = make_file(&session.dir, "file", "0123456789"), bad = bad_handle();
	struct handle gone = stale(&session.dir, false);

	WANT("READ", NFS3_OK, read_at(&file, 2, 5));
	check(got.count == 5 && got.length == 5 && !got.eof && memcmp(got.bytes, "23456", 5) == 0,
	      "READ in the middle: those bytes, not the end");
	check_attributes("READ", &file, &got.object);
	WANT("READ up to the end", NFS3_OK, read_at(&file, 4, 6));
	check(got.count == 6 && got.eof, "READ up to the end: the end");
	WANT("READ over the end", NFS3_OK, read_at(&file, 8, 100));
	check(got.count == 2 && got.length == 2 && got.eof && memcmp(got.bytes, "89", 2) == 0,
	      "READ over the end: what there is");
	WANT("READ at the end", NFS3_OK, read_at(&file, 10, 10));
	check(got.count == 0 && got.length == 0 && got.eof, "READ at the end: nothing, the end");
	WANT("READ beyond the end", NFS3_OK, read_at(&file, 1000, 10));
	check(got.count == 0 && got.eof, "READ beyond the end: nothing, the end");
	WANT("READ of 0 bytes", NFS3_OK, read_at(&file, 3, 0));
	check(got.count == 0 && got.length == 0 && !got.eof, "READ of 0 bytes: nothing, not the end");
	WANT("READ of 0 bytes at the end", NFS3_OK, read_at(&file, 10, 0));
	check(got.count == 0 && got.eof, "READ of 0 bytes at the end: the end");
	ONE_OF("READ at 2^63 - 1", read_at(&file, INT64_MAX, 10), NFS3_OK, NFS3ERR_INVAL);
	check(got.status != NFS3_OK || (got.count == 0 && got.eof), "READ at 2^63 - 1: nothing");
	ONE_OF("READ at 2^64 - 1", read_at(&file, UINT64_MAX, 10), NFS3_OK, NFS3ERR_INVAL);
	check(got.status != NFS3_OK || (got.count == 0 && got.eof), "READ at 2^64 - 1: nothing");
	WANT("READ of more than there can be", NFS3_OK, read_at(&file, 0, UINT32_MAX));
	check(got.count == 10 && got.eof, "READ of more than there can be: what there is");
	ONE_OF("READ of a directory", read_at(&session.dir, 0, 10), NFS3ERR_ISDIR, NFS3ERR_INVAL);
	WANT("SYMLINK", NFS3_OK, symlink_in(&session.dir, "link", "file"));
	gone = find(&session.dir, "link");
	WANT("READ of a symlink", NFS3ERR_INVAL, read_at(&gone, 0, 10));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "link"));
	gone = stale(&session.dir, false);
	WANT("READ of a removed file", NFS3ERR_STALE, read_at(&gone, 0, 10));
	WANT("READ at no handle at all", NFS3ERR_BADHANDLE, read_at(&bad, 0, 10));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "file"));
}

static void
check_stability(const struct handle *file)
{
	static const char *const NAMES[] = {"WRITE unstable", "WRITE data sync", "WRITE file sync"};
	char verifier[8] = "";

	for (unsigned how = UNSTABLE; how <= FILE_SYNC; how++) {
		CHANGES(NAMES[how], file, write_at(file, 100 * how, "some bytes", 10, how));
		check(got.count == 10, "%s: all of it", NAMES[how]);
		check(got.committed >= how && got.committed <= FILE_SYNC,
		      "%s: as stable as was asked, at least", NAMES[how]);
		if (how > UNSTABLE)
			check(memcmp(verifier, got.verifier, 8) == 0, "%s: the verifier stays",
			      NAMES[how]);
		memcpy(verifier, got.verifier, 8);
		check(got.wcc.after.post_op_attr_u.attributes.size == 100 * how + 10,
		      "%s: the size after it", NAMES[how]);
		check(reads(file, 100 * how, "some bytes", 10), "%s: can be read", NAMES[how]);
	}
	CHANGES("COMMIT", file, commit(file, 0, 0));
	check(memcmp(verifier, got.verifier, 8) == 0, "COMMIT: the verifier of the writes");
	WANT("COMMIT of a range", NFS3_OK, commit(file, 5, 100));
	WANT("COMMIT of a range beyond the end", NFS3_OK, commit(file, 1 << 20, 100));
	ONE_OF("COMMIT of a range beyond 2^64", commit(file, UINT64_MAX, 100), NFS3_OK,
	       NFS3ERR_INVAL);
}

static void
check_large(const struct handle *file)
{
	char *bytes = pattern(GATHERED), *read = malloc(GATHERED);
	char verifier[8];

	WANT("WRITE of 1 MiB", NFS3_OK, write_at(file, 0, bytes, BYTES_MAX, UNSTABLE));
	check(got.count == BYTES_MAX, "WRITE of 1 MiB: all of it");
	memcpy(verifier, got.verifier, 8);
	check(reads(file, 0, bytes, BYTES_MAX), "READ of 1 MiB before COMMIT: what was written");
	WANT("WRITE at an odd place", NFS3_OK, write_at(file, ODD, bytes, 70001, UNSTABLE));
	check(reads(file, ODD, bytes, 70001), "READ at an odd place: what was written");
	check(reads(file, ODD - 100, bytes + ODD - 100, 100), "READ before it: what was there");
	check(reads(file, ODD + 1, bytes + 1, 1000), "READ inside it: what was written");
	WANT("COMMIT of a part", NFS3_OK, commit(file, ODD, 100));
	WANT("COMMIT of all", NFS3_OK, commit(file, 0, 0));
	check(memcmp(verifier, got.verifier, 8) == 0, "COMMIT of all: the verifier of the writes");

	WANT("WRITE of a few bytes", NFS3_OK, write_at(file, 50000, "small", 5, UNSTABLE));
	WANT("WRITE of 1 MiB over them", NFS3_OK, write_at(file, 0, bytes, BYTES_MAX, UNSTABLE));
	WANT("WRITE of a few bytes over that", NFS3_OK, write_at(file, 70000, "small", 5, UNSTABLE));
	WANT("COMMIT", NFS3_OK, commit(file, 0, 0));
	check(reads(file, 50000, bytes + 50000, 20000) && reads(file, 70000, "small", 5) &&
		      reads(file, 70005, bytes + 70005, 1000),
	      "WRITE small, large and small again takes place in this order");

	for (uint32_t block = 8192; block <= BYTES_MAX; block *= 128) {
		uint32_t length = GATHERED / 4;

		check(write_many(file, bytes, length, block) == 0,
		      "WRITE unstable in blocks of %u, the last one first", block);
		check(read != NULL && read_many(file, read, length, block) == 0 &&
			      memcmp(read, bytes, length) == 0,
		      "READ in blocks of %u, many in flight: what was written", block);
		WANT("COMMIT", NFS3_OK, commit(file, 0, length));
		check(attributes_of(file).size == length, "COMMIT: the size is that of the writes");
	}
	check(write_many(file, bytes, GATHERED, BYTES_MAX) == 0, "WRITE unstable of 8 MiB");
	WANT("COMMIT", NFS3_OK, commit(file, 0, 0));
	memset(read, 0, GATHERED);
	check(read_many(file, read, GATHERED, 65536) == 0 && memcmp(read, bytes, GATHERED) == 0,
	      "READ of 8 MiB in blocks of 64 KiB after COMMIT: what was written");
	free(bytes);
	free(read);
}

static void
check_sparse(void)
{
	struct handle file = make_file(&session.dir, "sparse", "");
	static const char ZEROS[4096];
	uint64_t far = (uint64_t)1 << 42;

	CHANGES("WRITE at 2^42", &file, write_at(&file, far, "far", 3, FILE_SYNC));
	check(attributes_of(&file).size == far + 3, "WRITE at 2^42: the size");
	check(reads(&file, far, "far", 3), "READ at 2^42: what was written");
	check(reads(&file, far / 2, ZEROS, sizeof ZEROS) && !got.eof, "READ of a hole: zeros");
	check(attributes_of(&file).used < 100 << 20, "GETATTR: a hole takes no space");
	REFUSED("WRITE over 2^63", &file, write_at(&file, INT64_MAX - 1, "0123456789", 10, FILE_SYNC),
		NFS3ERR_FBIG, NFS3ERR_INVAL);
	REFUSED("WRITE at 2^64 - 1", &file, write_at(&file, UINT64_MAX, "01", 2, UNSTABLE),
		NFS3ERR_FBIG, NFS3ERR_INVAL);
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "sparse"));
}

static void
check_write_refusals(const struct handle *file)
{
	struct handle gone, bad = bad_handle();
	fattr3 before = attributes_of(file);

	WANT("WRITE of 0 bytes", NFS3_OK, write_at(file, 5, "", 0, FILE_SYNC));
	check(got.count == 0 && attributes_of(file).size == before.size,
	      "WRITE of 0 bytes: nothing changes");
	WANT("WRITE of 0 bytes beyond the end", NFS3_OK,
	     write_at(file, before.size + 5, "", 0, FILE_SYNC));
	check(attributes_of(file).size == before.size, "WRITE of 0 bytes beyond the end: likewise");
	ONE_OF("WRITE with a count beyond its data", write_counted(file, 100, "abc", 3),
	       NFS3ERR_INVAL, RPC_REFUSED);
	ONE_OF("WRITE to a directory", write_at(&session.dir, 0, "x", 1, FILE_SYNC), NFS3ERR_INVAL,
	       NFS3ERR_ISDIR);
	ONE_OF("COMMIT of a directory", commit(&session.dir, 0, 0), NFS3ERR_INVAL, NFS3ERR_ISDIR,
	       NFS3_OK);
	WANT("SYMLINK", NFS3_OK, symlink_in(&session.dir, "link", "file"));
	gone = find(&session.dir, "link");
	WANT("WRITE to a symlink", NFS3ERR_INVAL, write_at(&gone, 0, "x", 1, UNSTABLE));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "link"));
	gone = stale(&session.dir, false);
	WANT("WRITE unstable to a removed file", NFS3ERR_STALE, write_at(&gone, 0, "x", 1, UNSTABLE));
	WANT("WRITE file sync to a removed file", NFS3ERR_STALE,
	     write_at(&gone, 0, "x", 1, FILE_SYNC));
	WANT("COMMIT of a removed file", NFS3ERR_STALE, commit(&gone, 0, 0));
	WANT("WRITE at no handle at all", NFS3ERR_BADHANDLE, write_at(&bad, 0, "x", 1, FILE_SYNC));
	WANT("COMMIT at no handle at all", NFS3ERR_BADHANDLE, commit(&bad, 0, 0));
}

static void
check_cut(const struct handle *file)
{
	sattr3 cut = {.size = {.set_it = 1}};

	cut.size.set_size3_u.size = 10;
	WANT("WRITE unstable before a cut", NFS3_OK, write_at(file, 0, "0123456789abcdef", 16, UNSTABLE));
	WANT("SETATTR of a size after WRITE unstable", NFS3_OK, setattr(file, cut, NULL));
	WANT("WRITE unstable after a cut", NFS3_OK, write_at(file, 20, "end", 3, UNSTABLE));
	WANT("COMMIT", NFS3_OK, commit(file, 0, 0));
	check(reads(file, 0, "0123456789\0\0\0\0\0\0\0\0\0\0end", 23) && got.eof,
	      "WRITE, cut and WRITE take place in this order");
	WANT("WRITE unstable", NFS3_OK, write_at(file, 0, "lost", 4, UNSTABLE));
	WANT("REMOVE with data not committed", NFS3_OK, remove_from(&session.dir, "file"));
	WANT("COMMIT after REMOVE", NFS3ERR_STALE, commit(file, 0, 0));
}

void
check_data(void)
{
	struct handle file;

	check_read();
	file = make_file(&session.dir, "file", "");
	check_stability(&file);
	check_large(&file);
	check_write_refusals(&file);
	check_sparse();
	check_cut(&file);
}
