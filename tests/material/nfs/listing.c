/* READDIR and READDIRPLUS: every name once, whatever comes and goes meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "wire.h"

#define FILES 5000
#define PAGE 1024
#define PAGE_PLUS 4096

static const char NO_VERIFIER[8];

/* A listing under way, and how often it has given each of the names f0, f1 ... */
struct listing {
	struct handle dir;
	bool plus, eof, too_large, bare;
	uint32_t bound; /* of a page, in bytes */
	uint64_t cookie;
	char verifier[8];
	unsigned pages, dots, strangers;
	unsigned char seen[2 * FILES];
};

static void
next_page(struct listing *listing)
{
	uint64_t cookie = listing->cookie;
	uint32_t bound = listing->bound;
	int status = listing->plus ? readdirplus_of(&listing->dir, cookie, listing->verifier,
						    bound / 8, bound)
				   : readdir_of(&listing->dir, cookie, listing->verifier, bound);

	if (status != NFS3_OK) {
		check(false, "%s in a listing: %s", listing->plus ? "READDIRPLUS" : "READDIR",
		      nfsstat3_to_str(status));
		listing->eof = true;
		return;
	}
	listing->pages++;
	listing->too_large = listing->too_large || got.page_bytes > bound;
	listing->eof = got.eof || got.name_count == 0;
	memcpy(listing->verifier, got.verifier, 8);
	for (unsigned each = 0; each < got.name_count; each++) {
		const struct name *name = &got.names[each];
		unsigned number;

		listing->cookie = name->cookie;
		if (listing->plus && (!name->has_handle || !name->attributes.attributes_follow ||
				      name->attributes.post_op_attr_u.attributes.fileid != name->fileid))
			listing->bare = true;
		if (strcmp(name->name, ".") == 0 || strcmp(name->name, "..") == 0)
			listing->dots++;
		else if (sscanf(name->name, "f%u", &number) == 1 && number < 2 * FILES)
			listing->seen[number]++;
		else
			listing->strangers++;
	}
}

/* How many of the names from `from` on were not given `times`. */
static unsigned
not_seen(const struct listing *listing, unsigned from, unsigned to, unsigned times)
{
	unsigned wrong = 0;

	for (unsigned each = from; each < to; each++)
		wrong += listing->seen[each] != times;
	return wrong;
}

static unsigned
seen_twice(const struct listing *listing)
{
	unsigned wrong = 0;

	for (unsigned each = 0; each < 2 * FILES; each++)
		wrong += listing->seen[each] > 1;
	return wrong;
}

static void
check_whole(const struct handle *dir, bool plus, uint32_t bound)
{
	const char *what = plus ? "READDIRPLUS of 5,000" : "READDIR of 5,000";
	struct listing listing = {.dir = *dir, .plus = plus, .bound = bound};

	while (!listing.eof)
		next_page(&listing);
	check(not_seen(&listing, 0, FILES, 1) == 0 && listing.strangers == 0 &&
		      not_seen(&listing, FILES, 2 * FILES, 0) == 0,
	      "%s: every name once, and no others", what);
	check(listing.dots == 2, "%s: '.' and '..'", what);
	check(!listing.too_large, "%s: %u pages, none larger than %u", what, listing.pages, bound);
	check(!listing.bare, "%s: attributes and handles", what);
	check(readdir_of(dir, listing.cookie, listing.verifier, PAGE) == NFS3_OK &&
		      got.name_count == 0 && got.eof,
	      "%s: after the last cookie there is nothing", what);
}

/* A directory of all sizes: what ends where in a page is another thing in each. At the root of the
   export, which a server may keep in another way than what is made in it. */
static void
check_sizes(void)
{
	const struct handle *dir = &session.root;
	unsigned left = 1000;

	check(create_many(dir, "f", 0, left) == 0, "CREATE of %u files in the root", left);
	while (left > 50) {
		unsigned fewer = left - left / 24;

		check(remove_many(dir, "f", fewer, left) == 0, "REMOVE, down to %u", fewer);
		left = fewer;
		for (unsigned plus = 0; plus < 2; plus++) {
			struct listing listing = {.dir = *dir, .plus = plus, .bound = 8192 << 2 * plus};

			while (!listing.eof)
				next_page(&listing);
			check(not_seen(&listing, 0, left, 1) == 0 && seen_twice(&listing) == 0 &&
				      listing.dots == 2,
			      "%s of %u: every name once", plus ? "READDIRPLUS" : "READDIR", left);
		}
	}
	check(remove_many(dir, "f", 0, left) == 0, "REMOVE of the last ones");
}

static void
check_changing(const struct handle *dir, bool plus)
{
	const char *what = plus ? "READDIRPLUS while names change" : "READDIR while names change";
	struct listing listing = {.dir = *dir, .plus = plus, .bound = plus ? PAGE_PLUS : PAGE};
	unsigned last;

	while (!listing.eof && listing.pages < 20)
		next_page(&listing);
	if (got.name_count == 0 || sscanf(got.names[got.name_count - 1].name, "f%u", &last) != 1)
		die("no name that could be removed");
	/* Of the names listed and of those that are not, and the one that the cookie came with. */
	check(remove_many(dir, "f", 0, 500) == 0, "%s: 500 are removed", what);
	if (last >= 500)
		check(remove_many(dir, "f", last, last + 1) == 0, "%s: so is the last one listed", what);
	check(create_many(dir, "f", FILES, FILES + 500) == 0, "%s: 500 are added", what);
	while (!listing.eof)
		next_page(&listing);
	if (last >= 500)
		listing.seen[last] = 1;
	check(not_seen(&listing, 500, FILES, 1) == 0, "%s: what stays is listed once", what);
	check(seen_twice(&listing) == 0 && listing.strangers == 0, "%s: nothing twice", what);
	check(remove_many(dir, "f", FILES, FILES + 500) == 0, "%s: removed again", what);
	check(create_many(dir, "f", 0, 500) == 0, "%s: made again", what);
	if (last >= 500)
		check(create_many(dir, "f", last, last + 1) == 0, "%s: so is the last one", what);
}

/* What READDIRPLUS says of each name is what LOOKUP and GETATTR say. */
static void
check_entries(const struct handle *dir)
{
	unsigned wrong = 0, count;
	struct name *names;

	WANT("READDIRPLUS", NFS3_OK, readdirplus_of(dir, 0, NO_VERIFIER, 4096, 32768));
	check_attributes("READDIRPLUS", dir, &got.object);
	count = got.name_count;
	names = got.names;
	got.names = NULL;
	for (unsigned each = 0; each < count; each++) {
		struct handle found;

		if (names[each].name[0] == '.')
			continue;
		found = find(dir, names[each].name);
		wrong += !same_handle(&found, &names[each].handle) ||
			 attributes_of(&found).fileid != names[each].fileid ||
			 attributes_of(&found).mode !=
				 names[each].attributes.post_op_attr_u.attributes.mode;
	}
	check(wrong == 0 && count > 20, "READDIRPLUS: %u entries as LOOKUP and GETATTR have them",
	      count);
	free(names);
}

static void
check_cookies(const struct handle *dir)
{
	char verifier[8], other[8];
	uint64_t middle;

	WANT("READDIR", NFS3_OK, readdir_of(dir, 0, NO_VERIFIER, PAGE));
	check_attributes("READDIR", dir, &got.object);
	memcpy(verifier, got.verifier, 8);
	middle = got.names[got.name_count / 2].cookie;
	WANT("READDIR from a cookie in the middle", NFS3_OK, readdir_of(dir, middle, verifier, PAGE));
	WANT("READDIRPLUS from a cookie of READDIR", NFS3_OK,
	     readdirplus_of(dir, middle, verifier, 512, PAGE_PLUS));
	memcpy(other, verifier, 8);
	other[3] ^= 0x55;
	/* Cookies that stay good for ever need no verifier: then it is zero, and may be ignored. */
	if (memcmp(verifier, NO_VERIFIER, 8) != 0) {
		WANT("READDIR with another verifier", NFS3ERR_BAD_COOKIE,
		     readdir_of(dir, middle, other, PAGE));
		WANT("READDIRPLUS with another verifier", NFS3ERR_BAD_COOKIE,
		     readdirplus_of(dir, middle, other, 512, PAGE_PLUS));
	} else {
		ONE_OF("READDIR with another verifier", readdir_of(dir, middle, other, PAGE), NFS3_OK,
		       NFS3ERR_BAD_COOKIE);
	}
	/* Where a cookie is a place in the order of names, one behind them all is the end. */
	ONE_OF("READDIR from a cookie that never was", readdir_of(dir, UINT64_MAX, verifier, PAGE),
	       NFS3ERR_BAD_COOKIE, NFS3_OK);
	check(got.status != NFS3_OK || (got.name_count == 0 && got.eof),
	      "READDIR from a cookie that never was: nothing");
	ONE_OF("READDIRPLUS from a cookie that never was",
	       readdirplus_of(dir, UINT64_MAX, verifier, 512, PAGE_PLUS), NFS3ERR_BAD_COOKIE, NFS3_OK);
	check(got.status != NFS3_OK || (got.name_count == 0 && got.eof),
	      "READDIRPLUS from a cookie that never was: nothing");
	WANT("READDIR of 0 bytes", NFS3ERR_TOOSMALL, readdir_of(dir, 0, NO_VERIFIER, 0));
	WANT("READDIR of 50 bytes", NFS3ERR_TOOSMALL, readdir_of(dir, 0, NO_VERIFIER, 50));
	WANT("READDIRPLUS of 50 bytes", NFS3ERR_TOOSMALL, readdirplus_of(dir, 0, NO_VERIFIER, 50, 50));
	WANT("READDIRPLUS of 100 bytes", NFS3ERR_TOOSMALL,
	     readdirplus_of(dir, 0, NO_VERIFIER, 100, 100));
	WANT("READDIR of 4 GiB", NFS3_OK, readdir_of(dir, 0, NO_VERIFIER, UINT32_MAX));
	WANT("READDIRPLUS of 4 GiB", NFS3_OK,
	     readdirplus_of(dir, 0, NO_VERIFIER, UINT32_MAX, UINT32_MAX));
}

static void
check_list_refusals(void)
{
	struct handle file = make_file(&session.dir, "file", ""), gone = stale(&session.dir, true);
	struct handle empty = make_dir(&session.dir, "empty"), bad = bad_handle();

	WANT("READDIR of an empty directory", NFS3_OK, readdir_of(&empty, 0, NO_VERIFIER, PAGE));
	check(got.eof && got.name_count <= 2, "READDIR of an empty directory: the end");
	WANT("READDIRPLUS of an empty directory", NFS3_OK,
	     readdirplus_of(&empty, 0, NO_VERIFIER, 512, PAGE_PLUS));
	check(got.eof && got.name_count <= 2, "READDIRPLUS of an empty directory: the end");
	WANT("CREATE", NFS3_OK, create(&empty, "\xff\x01 name\xc3\x28", GUARDED, mode_of(0600)));
	WANT("READDIR", NFS3_OK, readdir_of(&empty, 0, NO_VERIFIER, PAGE));
	check(got.name_count > 0 &&
		      strcmp(got.names[got.name_count - 1].name, "\xff\x01 name\xc3\x28") == 0,
	      "READDIR: a name of any bytes as it was given");
	WANT("REMOVE", NFS3_OK, remove_from(&empty, "\xff\x01 name\xc3\x28"));
	WANT("READDIR of a file", NFS3ERR_NOTDIR, readdir_of(&file, 0, NO_VERIFIER, PAGE));
	WANT("READDIRPLUS of a file", NFS3ERR_NOTDIR,
	     readdirplus_of(&file, 0, NO_VERIFIER, 512, PAGE_PLUS));
	WANT("READDIR of a removed directory", NFS3ERR_STALE, readdir_of(&gone, 0, NO_VERIFIER, PAGE));
	WANT("READDIRPLUS of a removed directory", NFS3ERR_STALE,
	     readdirplus_of(&gone, 0, NO_VERIFIER, 512, PAGE_PLUS));
	WANT("READDIR at no handle at all", NFS3ERR_BADHANDLE, readdir_of(&bad, 0, NO_VERIFIER, PAGE));
	WANT("READDIRPLUS at no handle at all", NFS3ERR_BADHANDLE,
	     readdirplus_of(&bad, 0, NO_VERIFIER, 512, PAGE_PLUS));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "file"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "empty"));
}

void
check_listing(void)
{
	struct handle dir = make_dir(&session.dir, "many");

	check(create_many(&dir, "f", 0, FILES) == 0, "CREATE of 5,000 files, many in flight");
	for (uint32_t bound = PAGE; bound <= BYTES_MAX; bound *= 4) {
		check_whole(&dir, false, bound);
		check_whole(&dir, true, 4 * bound < BYTES_MAX ? 4 * bound : BYTES_MAX);
	}
	check_entries(&dir);
	check_cookies(&dir);
	check_changing(&dir, false);
	check_changing(&dir, true);
	check(remove_many(&dir, "f", 0, FILES) == 0, "REMOVE of 5,000 files, many in flight");
	check_sizes();
	check_list_refusals();
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "many"));
}
