/* A made-up NVIDIA driver for tests: two GPUs by NVML and by the CUDA driver API, which list them in
 * opposite orders. It keeps no memory and draws a power of its own invention. Who retains a context
 * of which GPU is written to the file that MADE_UP_GPU names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the order of NVML, which is that of the buses; CUDA's first is the last. */
static const char *addresses[] = { "00000000:17:00.0", "00000000:B3:00.0" };
static int handles[2];

static int is_known(void *device) { return device == &handles[0] || device == &handles[1]; }

int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int status) { return status ? "made up" : "success"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **device) {
	*device = &handles[at];
	return at > 1;
}
int nvmlDeviceGetName(void *device, char *name, unsigned room) {
	snprintf(name, room, "Made-up GPU");
	return !is_known(device);
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
	*milliwatts = device == &handles[0] ? 250000 : 300000;
	return !is_known(device);
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
	return 3; /* not supported, as before Volta */
}
int nvmlDeviceGetPciInfo_v3(void *device, char *info) {
	memset(info, 0, 68);
	strcpy(info + 36, addresses[device != &handles[0]]);
	return !is_known(device);
}
int nvmlDeviceGetPcieThroughput(void *device, unsigned counter, unsigned *kilobytes) {
	*kilobytes = counter ? 25000000 : 1000;
	usleep(20000);
	return !is_known(device);
}
int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *megahertz) {
	*megahertz = type == 1 ? 1980 : 2619;
	return !is_known(device);
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent) {
	percent[0] = 7;
	percent[1] = 40;
	return !is_known(device);
}

int cuInit(unsigned flags) { return flags; }
int cuGetErrorString(int status, const char **words) { *words = "made up"; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int at) { *device = at; return at > 1; }
int cuDeviceGetName(char *name, int room, int device) {
	snprintf(name, room, "Made-up GPU");
	return device > 1;
}
int cuDeviceGetPCIBusId(char *address, int room, int device) {
	snprintf(address, room, "%s", addresses[1 - device]);
	return device > 1;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 1; return device > 1; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
	const char *path = getenv("MADE_UP_GPU");
	FILE *log = path ? fopen(path, "a") : NULL;
	if (log) {
		fprintf(log, "%d %s\n", (int)getpid(), addresses[1 - device]);
		fclose(log);
	}
	*context = &handles[1 - device];
	return device > 1;
}
int cuCtxSetCurrent(void *context) { return !is_known(context); }
int cuMemAlloc_v2(unsigned long long *pointer, size_t size) { return 2; /* out of memory */ }
int cuMemFree_v2(unsigned long long pointer) { return 0; }
int cuPointerSetAttribute(const void *value, int attribute, unsigned long long pointer) { return 0; }
int cuMemGetHandleForAddressRange(void *to, unsigned long long at, size_t size, int type,
				  unsigned long long flags) { return 1; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { return 1; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { return 1; }
