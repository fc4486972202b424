/* What the test programs check with: each failure says where, what was given, and why. */
#ifndef CHECK_H
#define CHECK_H

#include <azekura.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_failed(const char *file, int line, const char *what, long long given)
{
	fprintf(stderr, "%s:%d: %s gave %lld; last failure: %s\n", file, line, what, given,
		azekura_error_message());
	exit(1);
}

/* The call gives exactly this. */
#define IS(call, wanted)                                                       \
	do {                                                                   \
		long long given_ = (long long)(call);                          \
		if (given_ != (long long)(wanted))                             \
			check_failed(__FILE__, __LINE__, #call, given_);       \
	} while (0)

/* The call succeeds with 0. */
#define OK(call) IS(call, 0)

/* What must hold. */
#define HOLDS(what)                                                            \
	do {                                                                   \
		if (!(what))                                                   \
			check_failed(__FILE__, __LINE__, #what, 0);            \
	} while (0)

/* The call fails with this errno, and its message has this text in it. */
#define FAILS(call, code, text)                                                \
	do {                                                                   \
		IS(call, -(code));                                             \
		if (strstr(azekura_error_message(), text) == NULL)             \
			check_failed(__FILE__, __LINE__, #call ": message", 0); \
	} while (0)

#endif
