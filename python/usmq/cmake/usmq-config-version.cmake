# The version of the header, for find_package(usmq 0.1).
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../include/usmq.h" _usmq_version REGEX "^#define USMQ_VERSION ")
string(REGEX REPLACE ".*\"([^\"]+)\".*" "\\1" PACKAGE_VERSION "${_usmq_version}")
unset(_usmq_version)

# Before 1.0, a minor version may change what is there.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _usmq_series "${PACKAGE_VERSION}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _usmq_asked "${PACKAGE_FIND_VERSION}")
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION
   AND (_usmq_asked STREQUAL _usmq_series OR NOT _usmq_asked))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
unset(_usmq_series)
unset(_usmq_asked)
