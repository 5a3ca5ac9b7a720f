# find_package(usmq): C and C++ against the usmq that is installed with Python.
#
#   usmq::headers  usmq.h, usmq.hpp and SYCL; for libraries that are loaded where Python has imported usmq
#   usmq::usmq     these, and libusmq.so.0; for programs without Python
#
# SYCL is that of icpx with -fsycl where icpx is the compiler, else headers and libsycl of the Python environment.
# USMQ_FSYCL=ON or OFF decides otherwise: ON for another compiler that takes -fsycl. USMQ_SYCL_ROOT is a folder with
# include/sycl/sycl.hpp and lib/libsycl.so, asked first. find_package(usmq COMPONENTS library) fails where this usmq
# has no libusmq.so.0; USMQ_LIBRARY names one from elsewhere, as one that cargo made.

get_filename_component(_usmq_package "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

# <environment>/lib/pythonX.Y/site-packages/usmq, or <folder>/usmq after pip install --target.
get_filename_component(_usmq_environment "${_usmq_package}/../../../.." ABSOLUTE)
get_filename_component(_usmq_target "${_usmq_package}/.." ABSOLUTE)
set(_usmq_roots ${USMQ_SYCL_ROOT} $ENV{USMQ_SYCL_ROOT} "${_usmq_environment}" "${_usmq_target}")

if(NOT DEFINED USMQ_FSYCL)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "IntelLLVM")
    set(USMQ_FSYCL ON)
  else()
    set(USMQ_FSYCL OFF)
  endif()
endif()

set(usmq_FOUND TRUE)
list(TRANSFORM _usmq_roots APPEND "/include" OUTPUT_VARIABLE _usmq_includes)
list(TRANSFORM _usmq_roots APPEND "/lib" OUTPUT_VARIABLE _usmq_libs)
find_library(USMQ_SYCL_LIBRARY NAMES sycl HINTS ${_usmq_libs} NO_DEFAULT_PATH)
if(NOT USMQ_FSYCL)
  find_path(USMQ_SYCL_INCLUDE_DIR NAMES sycl/sycl.hpp HINTS ${_usmq_includes} NO_DEFAULT_PATH)
  if(NOT USMQ_SYCL_INCLUDE_DIR OR NOT USMQ_SYCL_LIBRARY)
    set(usmq_FOUND FALSE)
    set(usmq_NOT_FOUND_MESSAGE
        "usmq: sycl/sycl.hpp and libsycl.so are not in the environment of ${_usmq_package}. Install intel-sycl-rt \
there, set USMQ_SYCL_ROOT, or build with icpx")
  endif()
endif()

find_file(USMQ_LIBRARY NAMES libusmq.so.0 HINTS "${_usmq_package}/lib" NO_DEFAULT_PATH)
set(usmq_library_FOUND FALSE)
if(USMQ_LIBRARY)
  set(usmq_library_FOUND TRUE)
elseif(usmq_FIND_REQUIRED_library)
  set(usmq_FOUND FALSE)
  set(usmq_NOT_FOUND_MESSAGE
      "usmq: ${_usmq_package}/lib has no libusmq.so.0: this usmq was built from source. In the checkout, \
`cargo rustc --release --lib --features c-library --crate-type cdylib` builds it; set USMQ_LIBRARY to target/release/libusmq.so")
endif()
foreach(_usmq_component IN LISTS usmq_FIND_COMPONENTS)
  if(NOT _usmq_component STREQUAL "library" AND usmq_FIND_REQUIRED_${_usmq_component})
    set(usmq_FOUND FALSE)
    set(usmq_NOT_FOUND_MESSAGE "usmq: there is no component ${_usmq_component}, only library")
  endif()
endforeach()

if(usmq_FOUND AND NOT TARGET usmq::headers)
  add_library(usmq::headers INTERFACE IMPORTED)
  target_include_directories(usmq::headers INTERFACE "${_usmq_package}/include")
  target_link_libraries(usmq::headers INTERFACE ${CMAKE_DL_LIBS})
  if(USMQ_FSYCL)
    target_compile_options(usmq::headers INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsycl>)
    target_link_options(usmq::headers INTERFACE -fsycl)
    if(USMQ_SYCL_LIBRARY)
      # The libsycl that usmq loads: a second one in the process would not know its queues.
      get_filename_component(_usmq_lib "${USMQ_SYCL_LIBRARY}" DIRECTORY)
      target_link_options(usmq::headers INTERFACE "LINKER:-rpath,${_usmq_lib}")
    endif()
  else()
    target_include_directories(usmq::headers SYSTEM INTERFACE "${USMQ_SYCL_INCLUDE_DIR}"
                                                              "${USMQ_SYCL_INCLUDE_DIR}/sycl")
    target_compile_definitions(usmq::headers INTERFACE SYCL_DISABLE_FSYCL_SYCLHPP_WARNING)
    target_link_libraries(usmq::headers INTERFACE "${USMQ_SYCL_LIBRARY}")
  endif()

  add_library(usmq::usmq INTERFACE IMPORTED)
  target_link_libraries(usmq::usmq INTERFACE usmq::headers)
  if(usmq_library_FOUND)
    # Linked, so that the folder is on the run path: usmq.h loads it by its name.
    add_library(usmq::library SHARED IMPORTED)
    set_target_properties(usmq::library PROPERTIES IMPORTED_LOCATION "${USMQ_LIBRARY}" IMPORTED_SONAME libusmq.so.0)
    target_link_libraries(usmq::usmq INTERFACE usmq::library)
  endif()
endif()

foreach(_usmq_variable package environment target roots includes libs lib component)
  unset(_usmq_${_usmq_variable})
endforeach()
