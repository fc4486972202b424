/*
 * Every procedure of NFS version 3, MOUNT version 3 and NLM version 4 at a server, with good and bad
 * arguments, as RFC 1813 has them. Works in a directory `conformance` of the export, which must not be
 * there and is removed.
 *
 * conformance HOST NFS-PORT MOUNT-PORT EXPORT [--nlm-port N] [--uid N] [--gid N] [--nobody N]
 *             [--only PART]
 *
 * --uid and --gid: who calls, root if not said. Who calls must be able to make a directory in the
 * export. --nobody: the export takes root for this user; then --uid says somebody else.
 * Exit code 0: all is as it should be; 1: not all; 2: could not be run to its end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "wire.h"

extern unsigned checks, failed;

static const struct {
	const char *name;
	void (*run)(void);
} PARTS[] = {
	{"attributes", check_attribute_calls}, {"file-systems", check_file_systems},
	{"making", check_making},	       {"moving", check_moving},
	{"removing", check_removing},	       {"data", check_data},
	{"listing", check_listing},	       {"permissions", check_permissions},
	{"locks", check_locks},		       {"mounting", check_mounting},
};

static int
number(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0')
		die("'%s' is no number", text);
	return (int)value;
}

int
main(int count, char **words)
{
	const char *only = NULL;
	int nlm_port = 0;

	if (count < 5 || count % 2 == 0)
		die("HOST NFS-PORT MOUNT-PORT EXPORT [--nlm-port N] [--uid N] [--gid N] "
		    "[--nobody N] [--only PART]");
	session.path = words[4];
	for (int each = 5; each < count; each += 2) {
		if (strcmp(words[each], "--nlm-port") == 0)
			nlm_port = number(words[each + 1]);
		else if (strcmp(words[each], "--uid") == 0)
			session.uid = (uint32_t)number(words[each + 1]);
		else if (strcmp(words[each], "--gid") == 0)
			session.gid = (uint32_t)number(words[each + 1]);
		else if (strcmp(words[each], "--nobody") == 0)
			session.nobody = (uint32_t)number(words[each + 1]);
		else if (strcmp(words[each], "--only") == 0)
			only = words[each + 1];
		else
			die("what is '%s'?", words[each]);
	}
	session.superuser = session.uid == 0 && session.nobody == 0;

	session.locks = connect_all(words[1], number(words[2]), number(words[3]), nlm_port);
	if (nlm_port != 0)
		check(session.locks, "NLM is served");
	be_caller();
	if (mount_path(session.path) != MNT3_OK)
		die("MNT of %s: %s", session.path, mountstat3_to_str(got.status));
	session.root = got.handle;
	session.dir = make_dir(&session.root, "conformance");
	for (size_t each = 0; each < sizeof PARTS / sizeof *PARTS; each++)
		if (only == NULL || strcmp(only, PARTS[each].name) == 0)
			PARTS[each].run();
	be_caller();
	WANT("RMDIR of what the checks worked in", NFS3_OK, rmdir_from(&session.root, "conformance"));
	disconnect_all();
	printf("%u checks, %u failed\n", checks, failed);
	return failed == 0 ? 0 : 1;
}
