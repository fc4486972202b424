/* Copies inside the kernel's calls, between files of the base directory and of a directory that is
 * never in the pool, and waits on descriptors. */
#include "tell.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LONG = 3 * 1024 * 1024 + 17 };

static const char *outside;

static const char *out(const char *name)
{
	static char path[4096];

	snprintf(path, sizeof path, "%s/%s", outside, name);
	return path;
}

static unsigned long sum(int fd)
{
	static unsigned char data[65536];
	unsigned long total = 0;
	ssize_t got;
	off_t where = 0;

	while ((got = pread(fd, data, sizeof data, where)) > 0) {
		for (ssize_t i = 0; i < got; i++)
			total = total * 31 + data[i];
		where += got;
	}
	return total;
}

static void fill(int fd)
{
	static unsigned char data[LONG];

	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (unsigned char)(i * 7 + i / 251);
	T(pwrite(fd, data, sizeof data, 0));
}

static void whole(int from, int to)
{
	ssize_t got;
	size_t total = 0;

	T(lseek(from, 0, SEEK_SET));
	T(lseek(to, 0, SEEK_SET));
	T(ftruncate(to, 0));
	while ((got = copy_file_range(from, NULL, to, NULL, 1 << 30, 0)) > 0)
		total += (size_t)got;
	printf("%zu copied, then %zd, positions %ld %ld, sum %lx\n", total, got,
	       (long)lseek(from, 0, SEEK_CUR), (long)lseek(to, 0, SEEK_CUR), sum(to));
	T(lseek(from, 0, SEEK_SET));
	T(lseek(to, 0, SEEK_SET));
	T(ftruncate(to, 0));
	total = 0;
	while ((got = sendfile(to, from, NULL, 1 << 30)) > 0)
		total += (size_t)got;
	printf("%zu sent, then %zd, positions %ld %ld, sum %lx\n", total, got,
	       (long)lseek(from, 0, SEEK_CUR), (long)lseek(to, 0, SEEK_CUR), sum(to));
}

static void parts(int from, int to)
{
	off_t in = 10, where = 100;

	T(lseek(from, 5, SEEK_SET));
	T(lseek(to, 7, SEEK_SET));
	T(ftruncate(to, 0));
	T(copy_file_range(from, &in, to, &where, 1000, 0));
	printf("%ld %ld %ld %ld\n", (long)in, (long)where, (long)lseek(from, 0, SEEK_CUR),
	       (long)lseek(to, 0, SEEK_CUR));
	T(copy_file_range(from, NULL, to, &where, 1000, 0));
	T(copy_file_range(from, &in, to, NULL, 1000, 0));
	printf("%ld %ld %ld %ld\n", (long)in, (long)where, (long)lseek(from, 0, SEEK_CUR),
	       (long)lseek(to, 0, SEEK_CUR));
	in = LONG - 3;
	T(copy_file_range(from, &in, to, NULL, 1000, 0));
	T(copy_file_range(from, &in, to, NULL, 1000, 0));
	in = 20;
	T(sendfile(to, from, &in, 2000));
	printf("%ld %ld %ld\n", (long)in, (long)lseek(from, 0, SEEK_CUR),
	       (long)lseek(to, 0, SEEK_CUR));
	printf("sum %lx\n", sum(to));
	T(copy_file_range(from, NULL, to, NULL, 0, 0));
	T(copy_file_range(from, NULL, to, NULL, 10, 1));
}

static void refusals(int from)
{
	int to = FD(open(at("ro"), O_RDONLY | O_CREAT, 0644));
	int dir = FD(open(at(""), O_RDONLY));
	int append = FD(open(at("ap"), O_WRONLY | O_CREAT | O_APPEND, 0644));
	int both[2];
	off_t in = -1;

	T(copy_file_range(from, NULL, to, NULL, 10, 0));
	T(sendfile(to, from, NULL, 10));
	T(copy_file_range(dir, NULL, from, NULL, 10, 0));
	T(copy_file_range(from, NULL, append, NULL, 10, 0));
	T(sendfile(append, from, NULL, 10));
	T(copy_file_range(from, NULL, -1, NULL, 10, 0));
	T(copy_file_range(-1, NULL, from, NULL, 10, 0));
	T(sendfile(-1, from, NULL, 10));
	T(sendfile(from, -1, NULL, 10));
	T(sendfile(from, dir, NULL, 10));
	T(copy_file_range(from, &in, from, NULL, 10, 0));
	T(lseek(from, 0, SEEK_SET));
	T(copy_file_range(from, NULL, from, NULL, 10, 0));
	T(pipe(both));
	T(copy_file_range(from, NULL, both[1], NULL, 10, 0));
	T(copy_file_range(both[0], NULL, from, NULL, 10, 0));
	T(tee(from, both[1], 10, 0));
	T(vmsplice(from, &(struct iovec){ .iov_base = &in, .iov_len = 1 }, 1, 0));
	in = -100;
	T(copy_file_range(from, &in, from, NULL, 10, 0));
	T(sendfile(from, from, &in, 10));
	close(to);
	close(dir);
	close(append);
	close(both[0]);
	close(both[1]);
}

static void into_sockets(int from)
{
	char text[64];
	int both[2], flags;
	ssize_t got;
	size_t total = 0;

	T(socketpair(AF_UNIX, SOCK_STREAM, 0, both));
	T(lseek(from, 1000, SEEK_SET));
	T(sendfile(both[0], from, NULL, 50));
	T(lseek(from, 0, SEEK_CUR));
	T(read(both[1], text, sizeof text));
	flags = fcntl(both[0], F_GETFL);
	T(fcntl(both[0], F_SETFL, flags | O_NONBLOCK));
	/* More than fits: some of it goes, and the position tells how much. */
	T(lseek(from, 0, SEEK_SET));
	while ((got = sendfile(both[0], from, NULL, LONG)) > 0)
		total += (size_t)got;
	T(total > 0 && total < LONG);
	printf("%s %d\n", strerrorname_np(errno), (size_t)lseek(from, 0, SEEK_CUR) == total);
	close(both[0]);
	close(both[1]);
}

static void waits(int fd)
{
	struct pollfd polled = { .fd = fd, .events = POLLIN | POLLOUT };
	struct timeval none = { 0, 0 };
	fd_set reads, writes;

	T(poll(&polled, 1, 0));
	T(polled.revents);
	FD_ZERO(&reads);
	FD_ZERO(&writes);
	FD_SET(fd, &reads);
	FD_SET(fd, &writes);
	T(select(fd + 1, &reads, &writes, NULL, &none));
	T(epoll_ctl(FD(epoll_create1(0)), EPOLL_CTL_ADD, fd,
		    &(struct epoll_event){ .events = EPOLLIN }));
}

int main(int count, char **arguments)
{
	int one, other, host;

	if (count != 3)
		return 2;
	base_path = arguments[1];
	outside = arguments[2];
	one = FD(open(at("one"), O_RDWR | O_CREAT, 0644));
	other = FD(open(at("other"), O_RDWR | O_CREAT, 0644));
	host = FD(open(out("host"), O_RDWR | O_CREAT, 0644));
	fill(one);
	whole(one, other);
	whole(other, host);
	whole(host, one);
	parts(one, other);
	parts(one, host);
	parts(host, other);
	fill(one);
	refusals(one);
	into_sockets(one);
	waits(one);
	return 0;
}
