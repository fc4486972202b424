/* ACCESS, and what each call lets whom do: owner, group, up to 16 groups more, everybody, root. */
#include <stdio.h>
#include <string.h>

#include "check.h"

#define ALL_BITS 0x3f
#define FILE_WRITE (ACCESS3_MODIFY | ACCESS3_EXTEND)
#define DIR_WRITE (ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE)

static const char NO_VERIFIER[8];
/* `alice` owns `place`; `bob` is somebody else; `club` is one more group of both. */
static uint32_t alice, alice_group, bob, club;
static uint32_t more_groups[16];
static struct handle place;

static void
be_alice(void)
{
	be(alice, alice_group, 16, more_groups);
}

static void
be_bob(unsigned group_count)
{
	be(bob, bob, group_count, more_groups);
}

static struct handle
make_with(const char *name, uint32_t mode)
{
	struct handle file;

	be_alice();
	file = make_file(&place, name, "text");
	WANT("SETATTR of the mode", NFS3_OK, setattr(&file, mode_of(mode), NULL));
	return file;
}

static void
give_to_club(const struct handle *object)
{
	sattr3 group = {.gid = {.set_it = 1}};

	group.gid.set_gid3_u.gid = club;
	be_alice();
	CHANGES("SETATTR of the group to the caller's 16th", object, setattr(object, group, NULL));
}

static void
set_mode(const struct handle *object, uint32_t mode)
{
	be_alice();
	if (setattr(object, mode_of(mode), NULL) != NFS3_OK)
		WANT("SETATTR of the mode", NFS3_OK, got.status);
}

static void
check_bits(const char *what, const struct handle *object, uint32_t ignored, uint32_t wanted)
{
	WANT("ACCESS", NFS3_OK, access_to(object, ALL_BITS));
	check((got.access & ~ignored) == wanted, "ACCESS: %s: %#x, to be %#x", what,
	      got.access & ~ignored, wanted);
	check_attributes("ACCESS", object, &got.object);
}

static void
check_access(void)
{
	struct handle file = make_with("file", 0640), dir, bad = bad_handle(), gone;

	be_alice();
	dir = make_dir(&place, "directory");
	give_to_club(&file);
	give_to_club(&dir);
	set_mode(&file, 0640);
	set_mode(&dir, 0750);
	/* Whether a file may be deleted is its directory's matter, and LOOKUP means nothing for it. */
	check_bits("a file's owner", &file, ACCESS3_DELETE, ACCESS3_READ | FILE_WRITE);
	check_bits("a directory's owner", &dir, ACCESS3_EXECUTE,
		   ACCESS3_READ | ACCESS3_LOOKUP | DIR_WRITE);
	be_bob(16);
	check_bits("a file's group, the caller's 16th", &file, ACCESS3_DELETE, ACCESS3_READ);
	check_bits("a directory's group", &dir, ACCESS3_EXECUTE, ACCESS3_READ | ACCESS3_LOOKUP);
	be_bob(15);
	check_bits("a file's others", &file, ACCESS3_DELETE, 0);
	check_bits("a directory's others", &dir, ACCESS3_EXECUTE, 0);
	set_mode(&file, 0751);
	be_bob(0);
	check_bits("a program's others", &file, ACCESS3_DELETE | ACCESS3_READ, ACCESS3_EXECUTE);
	WANT("ACCESS of one bit", NFS3_OK, access_to(&file, ACCESS3_MODIFY));
	check(got.access == 0, "ACCESS of one bit: no other is answered");
	be_alice();
	WANT("ACCESS of one bit", NFS3_OK, access_to(&file, ACCESS3_MODIFY));
	check(got.access == ACCESS3_MODIFY, "ACCESS of one bit: that one");
	WANT("ACCESS of no bit", NFS3_OK, access_to(&file, 0));
	check(got.access == 0, "ACCESS of no bit: none");
	gone = stale(&place, false);
	WANT("ACCESS of a removed file", NFS3ERR_STALE, access_to(&gone, ALL_BITS));
	WANT("ACCESS of no handle at all", NFS3ERR_BADHANDLE, access_to(&bad, ALL_BITS));
	WANT("REMOVE", NFS3_OK, remove_from(&place, "file"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&place, "directory"));
}

static void
check_files(void)
{
	struct handle file = make_with("file", 0640);
	sattr3 size = {.size = {.set_it = 1}}, now = {.atime = {.set_it = SET_TO_SERVER_TIME}};
	sattr3 then = {.mtime = {.set_it = SET_TO_CLIENT_TIME}};
	struct handle next;

	now.mtime.set_it = SET_TO_SERVER_TIME;
	give_to_club(&file);
	be_bob(15);
	WANT("READ by others", NFS3ERR_ACCES, read_at(&file, 0, 4));
	check_attributes("READ by others", &file, &got.object);
	REFUSED("WRITE by others", &file, write_at(&file, 0, "x", 1, UNSTABLE), NFS3ERR_ACCES);
	REFUSED("SETATTR of the size by others", &file, setattr(&file, size, NULL), NFS3ERR_ACCES,
		NFS3ERR_PERM);
	REFUSED("SETATTR of the mode by others", &file, setattr(&file, mode_of(0666), NULL),
		NFS3ERR_PERM, NFS3ERR_ACCES);
	be_bob(16);
	WANT("READ by the group, the caller's 16th", NFS3_OK, read_at(&file, 0, 4));
	REFUSED("WRITE by the group", &file, write_at(&file, 0, "x", 1, FILE_SYNC), NFS3ERR_ACCES);
	set_mode(&file, 0604);
	be_bob(16);
	WANT("READ by the group where only others may", NFS3ERR_ACCES, read_at(&file, 0, 4));
	be_bob(0);
	WANT("READ by others who may", NFS3_OK, read_at(&file, 0, 4));
	set_mode(&file, 0666);
	be_bob(0);
	CHANGES("WRITE by others who may", &file, write_at(&file, 0, "bobs", 4, UNSTABLE));
	CHANGES("SETATTR of now by who may write", &file, setattr(&file, now, NULL));
	REFUSED("SETATTR of a time by who may write", &file, setattr(&file, then, NULL), NFS3ERR_PERM,
		NFS3ERR_ACCES);
	CHANGES("SETATTR of the size by who may write", &file, setattr(&file, size, NULL));
	set_mode(&file, 0711);
	be_bob(0);
	WANT("READ by who may execute", NFS3_OK, read_at(&file, 0, 4));
	WANT("WRITE by who may execute", NFS3ERR_ACCES, write_at(&file, 0, "x", 1, FILE_SYNC));
	set_mode(&file, 0666);
	be_bob(0);
	WANT("WRITE unstable by others who may", NFS3_OK, write_at(&file, 0, "late", 4, UNSTABLE));
	set_mode(&file, 0600);
	be_bob(0);
	WANT("COMMIT by others who may write no more", NFS3_OK, commit(&file, 0, 0));
	be_alice();
	WANT("READ", NFS3_OK, read_at(&file, 0, 4));
	check(got.length == 4 && memcmp(got.bytes, "late", 4) == 0,
	      "COMMIT by others who may write no more: what they wrote is there");
	set_mode(&file, 0);
	WANT("READ by the owner whatever the mode", NFS3_OK, read_at(&file, 0, 4));
	WANT("WRITE by the owner whatever the mode", NFS3_OK, write_at(&file, 0, "x", 1, UNSTABLE));
	set_mode(&file, 06777);
	be_bob(0);
	WANT("WRITE to a set-user-id program", NFS3_OK, write_at(&file, 0, "x", 1, FILE_SYNC));
	check((attributes_of(&file).mode & 07777) == 0777, "WRITE takes set-id bits away: %o",
	      attributes_of(&file).mode);
	be_alice();
	WANT("CREATE exclusive", NFS3_OK, create_exclusive(&place, "next", "verifier"));
	next = find(&place, "next");
	be_bob(0);
	WANT("WRITE to a file made exclusively, by others", NFS3ERR_ACCES,
	     write_at(&next, 0, "x", 1, FILE_SYNC));
	be_alice();
	WANT("REMOVE", NFS3_OK, remove_from(&place, "next"));
	WANT("REMOVE", NFS3_OK, remove_from(&place, "file"));
}

static void
check_names(void)
{
	struct handle file = make_with("file", 0644);

	be_alice();
	make_dir(&place, "directory");
	be_bob(0);
	REFUSED("CREATE by others", &place, create(&place, "new", GUARDED, mode_of(0600)),
		NFS3ERR_ACCES);
	REFUSED("CREATE exclusive by others", &place, create_exclusive(&place, "new", "verifier"),
		NFS3ERR_ACCES);
	REFUSED("MKDIR by others", &place, mkdir_in(&place, "new", mode_of(0700)), NFS3ERR_ACCES);
	REFUSED("SYMLINK by others", &place, symlink_in(&place, "new", "text"), NFS3ERR_ACCES);
	REFUSED("MKNOD by others", &place, mknod_in(&place, "new", NF3FIFO, 0, 0), NFS3ERR_ACCES);
	REFUSED("REMOVE by others", &place, remove_from(&place, "file"), NFS3ERR_ACCES);
	REFUSED("RMDIR by others", &place, rmdir_from(&place, "directory"), NFS3ERR_ACCES);
	REFUSED("RENAME by others", &place, rename_to(&place, "file", &place, "new"), NFS3ERR_ACCES);
	REFUSED("LINK by others", &place, link_to(&file, &place, "new"), NFS3ERR_ACCES);
	WANT("LOOKUP by others", NFS3_OK, lookup(&place, "file"));
	set_mode(&place, 0700);
	be_bob(0);
	WANT("LOOKUP by who may not search", NFS3ERR_ACCES, lookup(&place, "file"));
	check_attributes("LOOKUP by who may not search", &place, &got.directory);
	WANT("READDIR by who may not read", NFS3ERR_ACCES, readdir_of(&place, 0, NO_VERIFIER, 4096));
	check_attributes("READDIR by who may not read", &place, &got.object);
	WANT("READDIRPLUS by who may not read", NFS3ERR_ACCES,
	     readdirplus_of(&place, 0, NO_VERIFIER, 4096, 4096));
	WANT("GETATTR by anybody", NFS3_OK, getattr(&place));
	set_mode(&place, 0744);
	be_bob(0);
	WANT("READDIR by who may read", NFS3_OK, readdir_of(&place, 0, NO_VERIFIER, 4096));
	WANT("LOOKUP by who may read and not search", NFS3ERR_ACCES, lookup(&place, "file"));
	set_mode(&place, 0711);
	be_bob(0);
	WANT("LOOKUP by who may search", NFS3_OK, lookup(&place, "file"));
	WANT("READDIR by who may search and not read", NFS3ERR_ACCES,
	     readdir_of(&place, 0, NO_VERIFIER, 4096));
	set_mode(&place, 0755);
	WANT("REMOVE", NFS3_OK, remove_from(&place, "file"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&place, "directory"));
}

static void
check_sticky(void)
{
	struct handle sticky, inner, file;

	be_alice();
	sticky = make_dir(&place, "sticky");
	set_mode(&sticky, 01777);
	make_file(&sticky, "alices", "");
	be_bob(0);
	file = make_file(&sticky, "bobs", "");
	check(attributes_of(&file).uid == bob && attributes_of(&file).gid == bob,
	      "CREATE by somebody else: theirs");
	ONE_OF("REMOVE of another's file in a sticky directory", remove_from(&sticky, "alices"),
	       NFS3ERR_ACCES, NFS3ERR_PERM);
	ONE_OF("RENAME of another's file in a sticky directory",
	       rename_to(&sticky, "alices", &sticky, "mine"), NFS3ERR_ACCES, NFS3ERR_PERM);
	WANT("RENAME of the own file in a sticky directory", NFS3_OK,
	     rename_to(&sticky, "bobs", &sticky, "mine"));
	be(bob + 1, bob + 1, 0, more_groups);
	ONE_OF("REMOVE of another's file in a sticky directory", remove_from(&sticky, "mine"),
	       NFS3ERR_ACCES, NFS3ERR_PERM);
	be_alice();
	WANT("REMOVE by the owner of a sticky directory", NFS3_OK, remove_from(&sticky, "mine"));
	WANT("REMOVE", NFS3_OK, remove_from(&sticky, "alices"));

	give_to_club(&sticky);
	set_mode(&sticky, 02777);
	be_bob(0);
	file = make_file(&sticky, "file", "");
	inner = make_dir(&sticky, "directory");
	check(attributes_of(&file).gid == club, "CREATE in a set-group-id directory: its group");
	check(attributes_of(&inner).gid == club && (attributes_of(&inner).mode & 02000),
	      "MKDIR in a set-group-id directory: its group and bit");
	WANT("REMOVE", NFS3_OK, remove_from(&sticky, "file"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&sticky, "directory"));
	be_alice();
	WANT("RMDIR", NFS3_OK, rmdir_from(&place, "sticky"));
}

static void
check_owners(void)
{
	struct handle file = make_with("file", 0644);
	sattr3 owner = {.uid = {.set_it = 1}}, group = {.gid = {.set_it = 1}};

	owner.uid.set_uid3_u.uid = bob;
	group.gid.set_gid3_u.gid = bob + 100;
	REFUSED("SETATTR of the owner by the owner", &file, setattr(&file, owner, NULL), NFS3ERR_PERM);
	REFUSED("SETATTR of the group to one that the caller is not in", &file,
		setattr(&file, group, NULL), NFS3ERR_PERM);
	be_bob(0);
	REFUSED("SETATTR of the owner by others", &file, setattr(&file, owner, NULL), NFS3ERR_PERM,
		NFS3ERR_ACCES);
	be_alice();
	WANT("REMOVE", NFS3_OK, remove_from(&place, "file"));
}

/* What root may do at an export that takes root for nobody. */
static void
check_squash(uint32_t nobody)
{
	struct handle file = make_with("file", 0600);

	be(0, 0, 0, more_groups);
	WANT("READ by a squashed root", NFS3ERR_ACCES, read_at(&file, 0, 4));
	REFUSED("CREATE by a squashed root", &place, create(&place, "new", GUARDED, mode_of(0600)),
		NFS3ERR_ACCES);
	ONE_OF("SETATTR by a squashed root", setattr(&file, mode_of(0666), NULL), NFS3ERR_PERM,
	       NFS3ERR_ACCES);
	set_mode(&place, 0777);
	be(0, 0, 0, more_groups);
	file = make_file(&place, "nobodys", "");
	check(attributes_of(&file).uid == nobody && attributes_of(&file).gid == nobody,
	      "CREATE by a squashed root: nobody's, %u", attributes_of(&file).uid);
	ONE_OF("MKNOD of a device by a squashed root", mknod_in(&place, "node", NF3CHR, 1, 3),
	       NFS3ERR_PERM, NFS3ERR_ACCES);
	be(bob, 0, 1, (uint32_t[]){0});
	file = make_file(&place, "bobs", "");
	check(attributes_of(&file).gid != 0, "CREATE with root's group: not root's");
	be_alice();
	set_mode(&place, 0755);
	WANT("REMOVE", NFS3_OK, remove_from(&place, "nobodys"));
	WANT("REMOVE", NFS3_OK, remove_from(&place, "bobs"));
	WANT("REMOVE", NFS3_OK, remove_from(&place, "file"));
}

void
check_permissions(void)
{
	sattr3 owner = {.uid = {.set_it = 1}, .gid = {.set_it = 1}};

	alice = session.superuser ? 2001 : session.uid;
	alice_group = session.superuser ? 2001 : session.gid;
	bob = alice + 1;
	club = alice_group + 5000;
	for (unsigned each = 0; each < 16; each++)
		more_groups[each] = club + 15 - each;
	be_caller();
	place = make_dir(&session.dir, "place");
	owner.uid.set_uid3_u.uid = alice;
	owner.gid.set_gid3_u.gid = alice_group;
	if (session.superuser)
		WANT("SETATTR of owner and group by root", NFS3_OK, setattr(&place, owner, NULL));
	check_access();
	check_files();
	check_names();
	check_sticky();
	check_owners();
	if (session.nobody != 0)
		check_squash(session.nobody);
	be_caller();
	if (session.superuser) {
		struct handle file = make_with("file", 0);

		be_caller();
		WANT("READ by root whatever the mode", NFS3_OK, read_at(&file, 0, 4));
		WANT("REMOVE by root", NFS3_OK, remove_from(&place, "file"));
	}
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "place"));
}
