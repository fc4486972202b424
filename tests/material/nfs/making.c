/* LOOKUP, and what makes names: CREATE, MKDIR, SYMLINK, MKNOD. */
#include <stdio.h>
#include <string.h>

#include "check.h"

static char longest[256], too_long[257];

/* Checks what every call that makes a name has in its reply. */
static void
check_made(const char *what, const char *name, ftype3 type, uint32_t mode)
{
	struct handle made = got.handle;
	post_op_attr given = got.object;
	fattr3 is = given.post_op_attr_u.attributes;

	check(got.has_handle, "%s: the reply has the handle", what);
	if (!got.has_handle)
		made = find(&session.dir, name);
	check_attributes(what, &made, &given);
	check(is.type == type && (type == NF3LNK || is.mode == mode), "%s: type and mode", what);
	check(is.uid == session.uid && is.gid == session.gid, "%s: owner and group are the caller's",
	      what);
	made = find(&session.dir, name);
	check(attributes_of(&made).fileid == is.fileid, "%s: LOOKUP finds it", what);
}

static void
check_lookup(void)
{
	struct handle file = make_file(&session.dir, "file", ""), dir = make_dir(&session.dir, "directory");
	struct handle gone = stale(&session.dir, true), bad = bad_handle(), found;
	uint64_t root = attributes_of(&session.root).fileid;
	uint64_t here = attributes_of(&session.dir).fileid;

	WANT("LOOKUP", NFS3_OK, lookup(&session.dir, "file"));
	check(same_handle(&got.handle, &file), "LOOKUP: the handle that CREATE gave");
	check_attributes("LOOKUP", &file, &got.object);
	check_attributes("LOOKUP of the directory", &session.dir, &got.directory);
	WANT("LOOKUP of '.'", NFS3_OK, lookup(&dir, "."));
	check(same_handle(&got.handle, &dir), "LOOKUP of '.': the directory itself");
	WANT("LOOKUP of '..'", NFS3_OK, lookup(&dir, ".."));
	found = got.handle;
	check(attributes_of(&found).fileid == here, "LOOKUP of '..': the directory above");
	ONE_OF("LOOKUP of '..' at the root of the export", lookup(&session.root, ".."), NFS3_OK,
	       NFS3ERR_NOENT, NFS3ERR_ACCES);
	if (got.status == NFS3_OK) {
		found = got.handle;
		check(attributes_of(&found).fileid == root,
		      "LOOKUP of '..' at the root of the export: the root");
	}
	WANT("LOOKUP of a name that is not there", NFS3ERR_NOENT, lookup(&session.dir, "missing"));
	check_attributes("LOOKUP of a name that is not there", &session.dir, &got.directory);
	WANT("LOOKUP in a file", NFS3ERR_NOTDIR, lookup(&file, "name"));
	WANT("LOOKUP of '.' in a file", NFS3ERR_NOTDIR, lookup(&file, "."));
	WANT("LOOKUP of 256 bytes", NFS3ERR_NAMETOOLONG, lookup(&session.dir, too_long));
	ONE_OF("LOOKUP of an empty name", lookup(&session.dir, ""), NFS3ERR_NOENT, NFS3ERR_ACCES,
	       NFS3ERR_INVAL);
	ONE_OF("LOOKUP of a name with a slash", lookup(&session.dir, "directory/name"), NFS3ERR_NOENT,
	       NFS3ERR_ACCES, NFS3ERR_INVAL);
	WANT("LOOKUP in a removed directory", NFS3ERR_STALE, lookup(&gone, "name"));
	WANT("LOOKUP at no handle at all", NFS3ERR_BADHANDLE, lookup(&bad, "name"));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "file"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "directory"));
}

static void
check_unchecked(void)
{
	struct handle file;
	sattr3 empty = mode_of(0600), plain = mode_of(0640);
	fattr3 before;

	empty.size.set_it = 1;
	CHANGES("CREATE unchecked", &session.dir, create(&session.dir, "file", UNCHECKED, plain));
	check_made("CREATE unchecked", "file", NF3REG, 0640);
	file = find(&session.dir, "file");
	WANT("WRITE", NFS3_OK, write_at(&file, 0, "contents", 8, FILE_SYNC));
	before = attributes_of(&file);
	WANT("CREATE unchecked of a file that is there", NFS3_OK,
	     create(&session.dir, "file", UNCHECKED, plain));
	check(got.object.attributes_follow &&
		      got.object.post_op_attr_u.attributes.fileid == before.fileid &&
		      got.object.post_op_attr_u.attributes.size == 8,
	      "CREATE unchecked of a file that is there: the same, with what is in it");
	WANT("CREATE unchecked with size 0", NFS3_OK,
	     create(&session.dir, "file", UNCHECKED, empty));
	check(attributes_of(&file).size == 0, "CREATE unchecked with size 0: the file is empty");
	REFUSED("CREATE guarded of a file that is there", &session.dir,
		create(&session.dir, "file", GUARDED, plain), NFS3ERR_EXIST);
	WANT("CREATE exclusive of a file that another call made", NFS3ERR_EXIST,
	     create_exclusive(&session.dir, "file", "12345678"));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "file"));
}

static void
check_exclusive(void)
{
	struct handle file;
	uint64_t fileid;

	CHANGES("CREATE exclusive", &session.dir,
		create_exclusive(&session.dir, "file", "\0\377verify"));
	file = got.has_handle ? got.handle : find(&session.dir, "file");
	fileid = attributes_of(&file).fileid;
	check(attributes_of(&file).type == NF3REG && attributes_of(&file).size == 0 &&
		      attributes_of(&file).uid == session.uid,
	      "CREATE exclusive: an empty file of the caller's");
	WANT("CREATE exclusive again, same verifier", NFS3_OK,
	     create_exclusive(&session.dir, "file", "\0\377verify"));
	check(got.object.attributes_follow &&
		      got.object.post_op_attr_u.attributes.fileid == fileid,
	      "CREATE exclusive again, same verifier: the same file");
	REFUSED("CREATE exclusive again, another verifier", &session.dir,
		create_exclusive(&session.dir, "file", "\0\377VERIFY"), NFS3ERR_EXIST);
	WANT("CREATE exclusive again, the verifier 0", NFS3ERR_EXIST,
	     create_exclusive(&session.dir, "file", "\0\0\0\0\0\0\0"));
	WANT("SETATTR after CREATE exclusive", NFS3_OK, setattr(&file, mode_of(0755), NULL));
	check(attributes_of(&file).mode == 0755, "SETATTR after CREATE exclusive: done");
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "file"));
	WANT("CREATE exclusive of a removed name, the first verifier", NFS3_OK,
	     create_exclusive(&session.dir, "file", "\0\377verify"));
	check(got.object.attributes_follow &&
		      got.object.post_op_attr_u.attributes.fileid != fileid,
	      "CREATE exclusive of a removed name: another file");
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "file"));
}

/* What every call that makes a name refuses; `what` is its name, `make` makes `name` in `dir`. */
static void
check_refusals(const char *what, int (*make)(const struct handle *dir, const char *name))
{
	struct handle file = find(&session.dir, "a-file"), gone = stale(&session.dir, true);
	struct handle bad = bad_handle();
	char text[100];

#define SAY(case_) (snprintf(text, sizeof text, "%s %s", what, case_), text)
	ONE_OF(SAY("of '.'"), make(&session.dir, "."), NFS3ERR_EXIST, NFS3ERR_ISDIR, NFS3ERR_INVAL);
	ONE_OF(SAY("of '..'"), make(&session.dir, ".."), NFS3ERR_EXIST, NFS3ERR_ISDIR,
	       NFS3ERR_INVAL);
	ONE_OF(SAY("of an empty name"), make(&session.dir, ""), NFS3ERR_ACCES, NFS3ERR_INVAL,
	       NFS3ERR_NOENT, NFS3ERR_EXIST);
	ONE_OF(SAY("of a name with a slash"), make(&session.dir, "a-file/b"), NFS3ERR_ACCES,
	       NFS3ERR_INVAL);
	WANT(SAY("of 256 bytes"), NFS3ERR_NAMETOOLONG, make(&session.dir, too_long));
	WANT(SAY("of 255 bytes"), NFS3_OK, make(&session.dir, longest));
	find(&session.dir, longest);
	if (remove_from(&session.dir, longest) != NFS3_OK)
		WANT(SAY("of 255 bytes: RMDIR"), NFS3_OK, rmdir_from(&session.dir, longest));
	ONE_OF(SAY("of a directory that is there"), make(&session.dir, "a-directory"), NFS3ERR_EXIST,
	       NFS3ERR_ISDIR);
	WANT(SAY("in a file"), NFS3ERR_NOTDIR, make(&file, "name"));
	WANT(SAY("in a removed directory"), NFS3ERR_STALE, make(&gone, "name"));
	WANT(SAY("at no handle at all"), NFS3ERR_BADHANDLE, make(&bad, "name"));
	WANT(SAY("of bytes above 127"), NFS3_OK, make(&session.dir, "\xff\x80 \xc3\xa9\n"));
	find(&session.dir, "\xff\x80 \xc3\xa9\n");
	if (remove_from(&session.dir, "\xff\x80 \xc3\xa9\n") != NFS3_OK)
		WANT(SAY("of bytes above 127: RMDIR"), NFS3_OK,
		     rmdir_from(&session.dir, "\xff\x80 \xc3\xa9\n"));
#undef SAY
}

static int
make_unchecked(const struct handle *dir, const char *name)
{
	return create(dir, name, UNCHECKED, mode_of(0644));
}

static int
make_guarded(const struct handle *dir, const char *name)
{
	return create(dir, name, GUARDED, mode_of(0644));
}

static int
make_exclusive(const struct handle *dir, const char *name)
{
	return create_exclusive(dir, name, "verifier");
}

static int
make_directory(const struct handle *dir, const char *name)
{
	return mkdir_in(dir, name, mode_of(0755));
}

static int
make_symlink(const struct handle *dir, const char *name)
{
	return symlink_in(dir, name, "text");
}

static int
make_fifo(const struct handle *dir, const char *name)
{
	return mknod_in(dir, name, NF3FIFO, 0, 0);
}

static void
check_mkdir(void)
{
	fattr3 before = attributes_of(&session.dir);
	struct handle made;

	CHANGES("MKDIR", &session.dir, mkdir_in(&session.dir, "directory", mode_of(0751)));
	check_made("MKDIR", "directory", NF3DIR, 0751);
	check(attributes_of(&session.dir).nlink == before.nlink + 1, "MKDIR: one more link above");
	made = find(&session.dir, "directory");
	CHANGES("CREATE in a directory just made", &made, create(&made, "in", GUARDED, mode_of(0600)));
	REFUSED("MKDIR of a name that is there", &session.dir,
		mkdir_in(&session.dir, "directory", mode_of(0700)), NFS3ERR_EXIST);
	WANT("REMOVE", NFS3_OK, remove_from(&made, "in"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "directory"));
}

static void
check_symlink(void)
{
	char text[1024];

	CHANGES("SYMLINK", &session.dir, symlink_in(&session.dir, "link", "text"));
	check_made("SYMLINK", "link", NF3LNK, 0777);
	REFUSED("SYMLINK of a name that is there", &session.dir,
		symlink_in(&session.dir, "link", "other"), NFS3ERR_EXIST);
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "link"));
	memset(text, 't', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	WANT("SYMLINK with a text of 1,023 bytes", NFS3_OK, symlink_in(&session.dir, "link", text));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "link"));
	ONE_OF("SYMLINK without a text", symlink_in(&session.dir, "link", ""), NFS3ERR_INVAL,
	       NFS3ERR_NOENT, NFS3ERR_ACCES);
}

static void
check_devices(void)
{
	fattr3 is;
	struct handle made;

	for (ftype3 type = NF3BLK; type <= NF3CHR; type++) {
		if (!session.superuser) {
			REFUSED("MKNOD of a device by who is not root", &session.dir,
				mknod_in(&session.dir, "node", type, 8, 300), NFS3ERR_PERM,
				NFS3ERR_ACCES);
			continue;
		}
		CHANGES("MKNOD of a device", &session.dir,
			mknod_in(&session.dir, "node", type, 8, 300));
		check_made("MKNOD of a device", "node", type, 0640);
		made = find(&session.dir, "node");
		is = attributes_of(&made);
		check(is.rdev.specdata1 == 8 && is.rdev.specdata2 == 300,
		      "MKNOD of a device: its numbers");
		WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "node"));
	}
}

static void
check_mknod(void)
{
	CHANGES("MKNOD of a fifo", &session.dir, mknod_in(&session.dir, "node", NF3FIFO, 0, 0));
	check_made("MKNOD of a fifo", "node", NF3FIFO, 0640);
	REFUSED("MKNOD of a name that is there", &session.dir,
		mknod_in(&session.dir, "node", NF3FIFO, 0, 0), NFS3ERR_EXIST);
	WANT("REMOVE of a fifo", NFS3_OK, remove_from(&session.dir, "node"));
	CHANGES("MKNOD of a socket", &session.dir, mknod_in(&session.dir, "node", NF3SOCK, 0, 0));
	check_made("MKNOD of a socket", "node", NF3SOCK, 0640);
	WANT("REMOVE of a socket", NFS3_OK, remove_from(&session.dir, "node"));
	check_devices();
	WANT("MKNOD of a file", NFS3ERR_BADTYPE, mknod_in(&session.dir, "node", NF3REG, 0, 0));
	WANT("MKNOD of a directory", NFS3ERR_BADTYPE, mknod_in(&session.dir, "node", NF3DIR, 0, 0));
	WANT("MKNOD of a symlink", NFS3ERR_BADTYPE, mknod_in(&session.dir, "node", NF3LNK, 0, 0));
}

void
check_making(void)
{
	memset(longest, 'l', sizeof longest - 1);
	memset(too_long, 'l', sizeof too_long - 1);
	check_lookup();
	check_unchecked();
	check_exclusive();
	check_mkdir();
	check_symlink();
	check_mknod();
	make_file(&session.dir, "a-file", "");
	make_dir(&session.dir, "a-directory");
	check_refusals("CREATE unchecked", make_unchecked);
	check_refusals("CREATE guarded", make_guarded);
	check_refusals("CREATE exclusive", make_exclusive);
	check_refusals("MKDIR", make_directory);
	check_refusals("SYMLINK", make_symlink);
	check_refusals("MKNOD", make_fifo);
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "a-file"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "a-directory"));
}
