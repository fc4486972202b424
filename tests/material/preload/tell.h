/* How the programs of this directory tell what calls came to, so that two runs can be compared. */
#ifndef TELL_H
#define TELL_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *base_path = "";

/* The path of a name in the base directory; good until some calls later. */
static inline const char *at(const char *name)
{
	static char paths[16][4096];
	static int next;
	char *path = paths[next++ % 16];

	snprintf(path, sizeof paths[0], "%s/%s", base_path, name);
	return path;
}

/* A path without the base directory, which differs between the runs. */
static inline const char *tail(const char *path)
{
	size_t length = strlen(base_path);

	if (path == NULL)
		return "(null)";
	if (strncmp(path, base_path, length) == 0)
		return path + length;
	return path;
}

static inline void tell(const char *what, long result)
{
	if (result == -1)
		printf("%s: -1 %s\n", what, strerrorname_np(errno) ? strerrorname_np(errno) : "0");
	else
		printf("%s: %ld\n", what, result);
}

/* Does a call and tells its result. */
#define T(call) (errno = 0, tell(#call, (long)(call)))
/* The same for a call that gives a descriptor, whose number does not matter; evaluates to it. */
static inline int tell_fd(const char *what, int fd)
{
	tell(what, fd < 0 ? -1 : 0);
	return fd;
}
#define FD(call) (errno = 0, tell_fd(#call, (call)))
/* The same for a call that gives a path. */
static inline void tell_path(const char *what, const char *path)
{
	if (path == NULL)
		printf("%s: NULL %s\n", what, strerrorname_np(errno) ? strerrorname_np(errno) : "0");
	else
		printf("%s: %s\n", what, tail(path));
}
#define P(call) (errno = 0, tell_path(#call, (call)))

#endif
