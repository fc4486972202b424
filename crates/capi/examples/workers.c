/*
 * Threads and processes: four children of fork(), each with two threads, fill their parts of one
 * array through the handles that the parent opened; the parent adds everything up.
 *
 *   cc -pthread workers.c $(pkg-config --cflags --libs azekura) -o workers
 *   ./workers POOL
 */
#define _POSIX_C_SOURCE 200809L
#include <azekura.h>

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4
#define THREADS 2
#define NUMBERS 65536 /* of each thread */

static azekura_object *array;

static int failed(void)
{
	fprintf(stderr, "%s\n", azekura_error_message());
	return 1;
}

static void *fill(void *argument)
{
	static _Thread_local unsigned char part[NUMBERS];
	unsigned number = *(unsigned *)argument;
	size_t at;

	for (at = 0; at < NUMBERS; at++)
		part[at] = (unsigned char)(number + 1);
	if (azekura_array_write(array, part, sizeof part, (uint64_t)number * NUMBERS) < 0) {
		failed();
		return argument;
	}
	return NULL;
}

static int child(unsigned number)
{
	pthread_t threads[THREADS];
	unsigned numbers[THREADS], at;
	void *wrong;
	int code = 0;

	for (at = 0; at < THREADS; at++) {
		numbers[at] = number * THREADS + at;
		if (pthread_create(&threads[at], NULL, fill, &numbers[at]) != 0)
			return 1;
	}
	for (at = 0; at < THREADS; at++) {
		pthread_join(threads[at], &wrong);
		code |= wrong != NULL;
	}
	return code;
}

static int add_up(unsigned long *sum)
{
	static unsigned char buffer[NUMBERS];
	uint64_t offset = 0;
	ssize_t got, at;

	*sum = 0;
	while ((got = azekura_array_read(array, buffer, sizeof buffer, offset)) > 0) {
		for (at = 0; at < got; at++)
			*sum += buffer[at];
		offset += (uint64_t)got;
	}
	return (int)got;
}

int main(int argc, char **argv)
{
	azekura_pool *pool;
	azekura_container *container;
	unsigned long sum;
	unsigned number;
	int state, code = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: %s POOL\n", argv[0]);
		return 2;
	}
	if (azekura_pool_open(argv[1], NULL, &pool) < 0 ||
	    azekura_container_open(pool, "default", 0, &container) < 0 ||
	    azekura_object_create(container, AZEKURA_SX, 65536, 0, &array) < 0)
		return failed();
	for (number = 0; number < CHILDREN; number++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (pid == 0)
			_exit(child(number));
	}
	while (wait(&state) > 0)
		code |= state;
	if (code != 0 || add_up(&sum) < 0)
		return code != 0 ? 1 : failed();
	printf("sum %lu\n", sum);
	if (azekura_object_remove(array) < 0)
		return failed();
	azekura_object_close(array);
	azekura_container_close(container);
	azekura_pool_close(pool);
	return 0;
}
