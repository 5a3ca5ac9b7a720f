// The functions that the loader asks for the driver's tables: Intel's, with entries replaced or refused.
#include "appends.h"
#include "drivers.h"
#include "events.h"
#include "kernels.h"
#include "lists.h"
#include "memory.h"
#include "modules.h"
#include "real.h"
#include "report.h"

#include <ze_ddi.h>

#define EXPORT extern "C" __attribute__((visibility("default"))) ze_result_t

// Defines a function of the loader's: fills the table from the real driver, then changes it.
#define TABLE(Function, Type, change)                                                                                  \
  EXPORT Function(ze_api_version_t version, Type *table) {                                                             \
    using Fill = ze_result_t (*)(ze_api_version_t, Type *);                                                            \
    const auto fill = reinterpret_cast<Fill>(front::real_symbol(#Function));                                           \
    if (fill == nullptr) {                                                                                             \
      return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;                                                                      \
    }                                                                                                                  \
    const ze_result_t result = fill(version, table);                                                                   \
    if (result == ZE_RESULT_SUCCESS) {                                                                                 \
      change                                                                                                           \
    }                                                                                                                  \
    return result;                                                                                                     \
  }

#define KEEP(table_of_real) front::real().table_of_real = *table;
#define REPLACE(entry, function) table->entry = &front::api::function;
// A call of this entry ends the process with the name.
#define REFUSE(entry, name) table->entry = [](auto...) -> ze_result_t { front::refuse(name); };

TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t, REPLACE(pfnInit, zeInit) REPLACE(pfnInitDrivers, zeInitDrivers))

TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t,
      KEEP(driver) REPLACE(pfnGet, zeDriverGet) REPLACE(pfnGetProperties, zeDriverGetProperties)
          REPLACE(pfnGetExtensionFunctionAddress, zeDriverGetExtensionFunctionAddress))

TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t,
      KEEP(device) REPLACE(pfnCanAccessPeer, zeDeviceCanAccessPeer)
          REPLACE(pfnGetP2PProperties, zeDeviceGetP2PProperties)
              REPLACE(pfnGetGlobalTimestamps, zeDeviceGetGlobalTimestamps) REPLACE(pfnSynchronize, zeDeviceSynchronize)
                  REFUSE(pfnImportExternalSemaphoreExt, "zeDeviceImportExternalSemaphoreExt"))

TABLE(zeGetContextProcAddrTable, ze_context_dditable_t,
      KEEP(context) REPLACE(pfnDestroy, zeContextDestroy) REPLACE(pfnSystemBarrier, zeContextSystemBarrier)
          REPLACE(pfnMakeMemoryResident, zeContextMakeMemoryResident) REPLACE(pfnEvictMemory, zeContextEvictMemory))

TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t,
      KEEP(memory) REPLACE(pfnAllocShared, zeMemAllocShared) REPLACE(pfnAllocDevice, zeMemAllocDevice)
          REPLACE(pfnAllocHost, zeMemAllocHost) REPLACE(pfnFree, zeMemFree) REPLACE(pfnFreeExt, zeMemFreeExt)
              REPLACE(pfnGetAllocProperties, zeMemGetAllocProperties) REPLACE(pfnGetAddressRange, zeMemGetAddressRange)
                  REFUSE(pfnGetIpcHandle, "zeMemGetIpcHandle") REFUSE(pfnOpenIpcHandle, "zeMemOpenIpcHandle")
                      REFUSE(pfnGetIpcHandleWithProperties, "zeMemGetIpcHandleWithProperties"))

TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t,
      KEEP(pool) REPLACE(pfnCreate, zeEventPoolCreate) REPLACE(pfnDestroy, zeEventPoolDestroy)
          REFUSE(pfnGetIpcHandle, "zeEventPoolGetIpcHandle") REFUSE(pfnOpenIpcHandle, "zeEventPoolOpenIpcHandle"))

TABLE(zeGetEventProcAddrTable, ze_event_dditable_t,
      KEEP(event) REPLACE(pfnCreate, zeEventCreate) REPLACE(pfnDestroy, zeEventDestroy)
          REPLACE(pfnHostSignal, zeEventHostSignal) REPLACE(pfnHostReset, zeEventHostReset)
              REPLACE(pfnHostSynchronize, zeEventHostSynchronize) REPLACE(pfnQueryStatus, zeEventQueryStatus)
                  REPLACE(pfnQueryKernelTimestamp, zeEventQueryKernelTimestamp)
                      REPLACE(pfnCounterBasedCreate, zeEventCounterBasedCreate)
                          REFUSE(pfnQueryKernelTimestampsExt, "zeEventQueryKernelTimestampsExt")
                              REFUSE(pfnCounterBasedGetIpcHandle, "zeEventCounterBasedGetIpcHandle")
                                  REFUSE(pfnCounterBasedOpenIpcHandle, "zeEventCounterBasedOpenIpcHandle")
                                      REFUSE(pfnCounterBasedGetDeviceAddress, "zeEventCounterBasedGetDeviceAddress"))

TABLE(zeGetEventExpProcAddrTable, ze_event_exp_dditable_t,
      KEEP(event_exp) REFUSE(pfnQueryTimestampsExp, "zeEventQueryTimestampsExp"))

TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t,
      KEEP(fence) REPLACE(pfnCreate, zeFenceCreate) REPLACE(pfnDestroy, zeFenceDestroy)
          REPLACE(pfnHostSynchronize, zeFenceHostSynchronize) REPLACE(pfnQueryStatus, zeFenceQueryStatus)
              REPLACE(pfnReset, zeFenceReset))

TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t,
      KEEP(queue) REPLACE(pfnCreate, zeCommandQueueCreate) REPLACE(pfnDestroy, zeCommandQueueDestroy)
          REPLACE(pfnExecuteCommandLists, zeCommandQueueExecuteCommandLists)
              REPLACE(pfnSynchronize, zeCommandQueueSynchronize))

TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t,
      KEEP(list) REPLACE(pfnCreate, zeCommandListCreate) REPLACE(pfnCreateImmediate, zeCommandListCreateImmediate)
          REPLACE(pfnDestroy, zeCommandListDestroy) REPLACE(pfnReset, zeCommandListReset) REPLACE(
              pfnHostSynchronize, zeCommandListHostSynchronize) REPLACE(pfnAppendMemoryCopy,
                                                                        zeCommandListAppendMemoryCopy)
              REPLACE(pfnAppendMemoryCopyFromContext, zeCommandListAppendMemoryCopyFromContext) REPLACE(
                  pfnAppendMemoryCopyRegion, zeCommandListAppendMemoryCopyRegion) REPLACE(pfnAppendMemoryFill,
                                                                                          zeCommandListAppendMemoryFill)
                  REPLACE(pfnAppendMemoryPrefetch, zeCommandListAppendMemoryPrefetch) REPLACE(
                      pfnAppendMemAdvise, zeCommandListAppendMemAdvise) REPLACE(pfnAppendBarrier,
                                                                                zeCommandListAppendBarrier)
                      REPLACE(pfnAppendMemoryRangesBarrier, zeCommandListAppendMemoryRangesBarrier) REPLACE(
                          pfnAppendSignalEvent, zeCommandListAppendSignalEvent) REPLACE(pfnAppendWaitOnEvents,
                                                                                        zeCommandListAppendWaitOnEvents)
                          REPLACE(pfnAppendEventReset, zeCommandListAppendEventReset) REPLACE(
                              pfnAppendWriteGlobalTimestamp,
                              zeCommandListAppendWriteGlobalTimestamp) REPLACE(pfnAppendQueryKernelTimestamps,
                                                                               zeCommandListAppendQueryKernelTimestamps)
                              REPLACE(pfnAppendHostFunction, zeCommandListAppendHostFunction) REPLACE(
                                  pfnAppendLaunchKernel,
                                  zeCommandListAppendLaunchKernel) REPLACE(pfnAppendLaunchCooperativeKernel,
                                                                           zeCommandListAppendLaunchCooperativeKernel)
                                  REPLACE(pfnAppendLaunchKernelWithParameters,
                                          zeCommandListAppendLaunchKernelWithParameters)
                                      REPLACE(pfnAppendLaunchKernelWithArguments,
                                              zeCommandListAppendLaunchKernelWithArguments)
                                          REFUSE(pfnAppendLaunchKernelIndirect,
                                                 "zeCommandListAppendLaunchKernelIndirec"
                                                 "t") REFUSE(pfnAppendLaunchMultipleKernelsIndirect,
                                                             "zeCommandListAppendLaunchMultipleKernelsIndirect")
                                              REFUSE(pfnAppendImageCopy, "zeCommandListAppendImageCopy") REFUSE(
                                                  pfnAppendImageCopyRegion, "zeCommandListAppendImageCopyRegion")
                                                  REFUSE(pfnAppendImageCopyToMemory,
                                                         "zeCommandListAppendImageCopyToMem"
                                                         "ory") REFUSE(pfnAppendImageCopyFromMemory,
                                                                       "zeCommandListAppendImageCopyFromMemory")
                                                      REFUSE(pfnAppendImageCopyToMemoryExt,
                                                             "zeCommandListAppendImageCo"
                                                             "pyToMemoryExt") REFUSE(pfnAppendImageCopyFromMemoryExt,
                                                                                     "zeCommandListAppendImageCopyFromM"
                                                                                     "emoryExt")
                                                          REFUSE(pfnAppendSignalExternalSemaphoreExt,
                                                                 "zeCommandListAppendSignalExternalSemaphoreExt")
                                                              REFUSE(pfnAppendWaitExternalSemaphoreExt,
                                                                     "zeCommandListA"
                                                                     "ppendWaitExter"
                                                                     "nalSemaphoreEx"
                                                                     "t") REFUSE(pfnAppendMemoryCopyWithParameters,
                                                                                 "zeCommandListAppendMemoryCopyWithPara"
                                                                                 "meters")
                                                                  REFUSE(pfnAppendMemoryFillWithParameters,
                                                                         "zeCommandListAppendMemoryFillWithParameters")
                                                                      REFUSE(
                                                                          pfnImmediateAppendCommandListsWithParameters,
                                                                          "zeCommandListImmediateAppendCommandListsWith"
                                                                          "Parameters")
                                                                          REFUSE(pfnBeginGraphCaptureExt,
                                                                                 "zeCommandListBeginGraphCaptureExt")
                                                                              REFUSE(pfnBeginCaptureIntoGraphExt,
                                                                                     "zeCommandListBeginCaptureIntoGrap"
                                                                                     "hExt")
                                                                                  REFUSE(pfnAppendGraphExt,
                                                                                         "zeCommandListAppendGraphExt"))

TABLE(zeGetCommandListExpProcAddrTable, ze_command_list_exp_dditable_t,
      KEEP(list_exp) REPLACE(pfnImmediateAppendCommandListsExp, zeCommandListImmediateAppendCommandListsExp)
          REPLACE(pfnGetNextCommandIdExp, zeCommandListGetNextCommandIdExp)
              REPLACE(pfnUpdateMutableCommandsExp, zeCommandListUpdateMutableCommandsExp)
                  REFUSE(pfnCreateCloneExp, "zeCommandListCreateCloneExp")
                      REFUSE(pfnUpdateMutableCommandSignalEventExp, "zeCommandListUpdateMutableCommandSignalEventExp")
                          REFUSE(pfnUpdateMutableCommandWaitEventsExp, "zeCommandListUpdateMutableCommandWaitEventsExp")
                              REFUSE(pfnUpdateMutableCommandKernelsExp, "zeCommandListUpdateMutableCommandKernelsExp"))

TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t,
      KEEP(module) REPLACE(pfnCreate, zeModuleCreate) REPLACE(pfnDestroy, zeModuleDestroy)
          REPLACE(pfnGetNativeBinary, zeModuleGetNativeBinary) REPLACE(pfnGetGlobalPointer, zeModuleGetGlobalPointer)
              REFUSE(pfnGetFunctionPointer, "zeModuleGetFunctionPointer"))

TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t,
      KEEP(kernel) REPLACE(pfnCreate, zeKernelCreate) REPLACE(pfnDestroy, zeKernelDestroy)
          REPLACE(pfnSetGroupSize, zeKernelSetGroupSize) REPLACE(pfnSetArgumentValue, zeKernelSetArgumentValue))

TABLE(zeGetKernelExpProcAddrTable, ze_kernel_exp_dditable_t,
      KEEP(kernel_exp) REPLACE(pfnSetGlobalOffsetExp, zeKernelSetGlobalOffsetExp))

TABLE(zeGetImageProcAddrTable, ze_image_dditable_t, REFUSE(pfnCreate, "zeImageCreate"))
TABLE(zeGetSamplerProcAddrTable, ze_sampler_dditable_t, REFUSE(pfnCreate, "zeSamplerCreate"))
TABLE(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t, REFUSE(pfnMap, "zeVirtualMemMap"))
TABLE(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t, REFUSE(pfnCreate, "zePhysicalMemCreate"))
TABLE(zeGetGraphProcAddrTable, ze_graph_dditable_t, REFUSE(pfnCreateExt, "zeGraphCreateExt"))

// Questions, and what an entry above would have to make first.
TABLE(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t, )
TABLE(zeGetDriverExpProcAddrTable, ze_driver_exp_dditable_t, )
TABLE(zeGetDeviceExpProcAddrTable, ze_device_exp_dditable_t, )
TABLE(zeGetMemExpProcAddrTable, ze_mem_exp_dditable_t, )
TABLE(zeGetImageExpProcAddrTable, ze_image_exp_dditable_t, )
TABLE(zeGetFabricVertexExpProcAddrTable, ze_fabric_vertex_exp_dditable_t, )
TABLE(zeGetFabricEdgeExpProcAddrTable, ze_fabric_edge_exp_dditable_t, )
TABLE(zeGetExecutableGraphProcAddrTable, ze_executable_graph_dditable_t, )

EXPORT zeInit(ze_init_flags_t flags) { return front::api::zeInit(flags); }
EXPORT zeInitDrivers(uint32_t *number, ze_driver_handle_t *drivers, ze_init_driver_type_desc_t *desc) {
  return front::api::zeInitDrivers(number, drivers, desc);
}
