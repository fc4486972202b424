// The header from C++: compiles, links, and its initialisers fit.
#include <azekura.h>

#include <cstring>

int main(int argc, char **argv)
{
	azekura_pool_options options = AZEKURA_POOL_OPTIONS_INIT;
	azekura_container_options container = AZEKURA_CONTAINER_OPTIONS_INIT;
	azekura_pool *pool = nullptr;

	options.timeout_ms = 20000;
	container.file_class = AZEKURA_S4;
	if (argc != 2 || azekura_pool_open(argv[1], &options, &pool) != 0)
		return 1;
	struct azekura_pool_info info; // A function has the name too, as with stat.
	if (azekura_pool_info(pool, &info) != 0 || std::strcmp(info.name, argv[1]) != 0)
		return 1;
	if (azekura_container_create(pool, "made-by-cpp", &container) != 0)
		return 1;
	return azekura_pool_close(pool);
}
