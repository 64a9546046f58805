/* A made-up NVIDIA driver for tests: one GPU by NVML and by the CUDA driver API. It keeps no
 * memory and draws a power of its own invention. Who retains a context is written to the file
 * that MADE_UP_GPU names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int handle;

int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int status) { return status ? "made up" : "success"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **device) {
	*device = &handle;
	return at != 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned room) {
	snprintf(name, room, "Made-up GPU");
	return device != &handle;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
	*milliwatts = 250000;
	return device != &handle;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
	return 3; /* not supported, as before Volta */
}
int nvmlDeviceGetPcieThroughput(void *device, unsigned counter, unsigned *kilobytes) {
	*kilobytes = counter ? 25000000 : 1000;
	usleep(20000);
	return device != &handle;
}
int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *megahertz) {
	*megahertz = type == 1 ? 1980 : 2619;
	return device != &handle;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent) {
	percent[0] = 7;
	percent[1] = 40;
	return device != &handle;
}

int cuInit(unsigned flags) { return flags; }
int cuGetErrorString(int status, const char **words) { *words = "made up"; return 0; }
int cuDeviceGet(int *device, int at) { *device = at; return 0; }
int cuDeviceGetName(char *name, int room, int device) {
	snprintf(name, room, "Made-up GPU");
	return device;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 1; return device; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
	const char *path = getenv("MADE_UP_GPU");
	FILE *log = path ? fopen(path, "a") : NULL;
	if (log) {
		fprintf(log, "%d\n", (int)getpid());
		fclose(log);
	}
	*context = &handle;
	return device;
}
int cuCtxSetCurrent(void *context) { return context != &handle; }
int cuMemAlloc_v2(unsigned long long *pointer, size_t size) { return 2; /* out of memory */ }
int cuMemFree_v2(unsigned long long pointer) { return 0; }
int cuPointerSetAttribute(const void *value, int attribute, unsigned long long pointer) { return 0; }
int cuMemGetHandleForAddressRange(void *to, unsigned long long at, size_t size, int type,
				  unsigned long long flags) { return 1; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { return 1; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { return 1; }
