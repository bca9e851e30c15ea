# The packages for Debian that `cmake --build BUILD --target package` writes, one for each component of install.cmake.
# packaging/deb builds them as users shall have them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sprat)
set(CPACK_PACKAGE_VENDOR "the Sprat authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)  # a package a component
set(CPACK_COMPONENTS_ALL library development command nccl)

set(SPRAT_PACKAGE_CONTACT "The Sprat authors <sprat@users.noreply.example.org>" CACHE STRING
  "Who answers for the packages: NAME <ADDRESS>")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${SPRAT_PACKAGE_CONTACT})
set(CPACK_PACKAGE_CONTACT ${SPRAT_PACKAGE_CONTACT})
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(debian_version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
# What the linker needs is read from the files. What is loaded by name when it is wanted cannot be, and is recommended:
# without OpenBLAS matrix products are the slow ones of our own, without libfabric hosts talk through sockets.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(loaded "libopenblas0-pthread | libopenblas0, libfabric1")

# describe(COMPONENT PACKAGE SECTION SUMMARY LINE...): what apt says of it, in lines of at most 80 columns.
function(describe component package section summary)
  string(TOUPPER ${component} key)
  list(JOIN ARGN "\n" text)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  # Policy 12.5 and 12.7 ask each package for both. Only packages have them: `cmake --install` leaves them out.
  install(FILES ${PROJECT_BINARY_DIR}/debian/copyright ${PROJECT_BINARY_DIR}/debian/changelog.Debian.gz
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

set(what "Sprat has collectives that know the machine they run on, sharded data"
  "parallelism, tensor and pipeline parallelism.")
describe(library libsprat0 libs "collectives and sharded training: the library" ${what}
  "This is the library that programs in C and C++ load.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS ${loaded})
describe(development libsprat-dev libdevel "collectives and sharded training: to compile programs" ${what}
  "This has the headers, the static library, the files of CMake and pkg-config,"
  "and examples in C and C++.")
# sprat.pc requires them: without their files pkg-config knows no flags of Sprat's, either.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libsprat0 (= ${debian_version}), libfmt-dev, libspdlog-dev, nlohmann-json3-dev, \
libhwloc-dev, libhwy-dev, libxxhash-dev, libisal-dev, zlib1g-dev, libssl-dev (>= 3.0), libpcre2-dev, liburing-dev")
if(pmix_FOUND)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libpmix-dev")
endif()
describe(command sprat science "collectives and sharded training: the command" ${what}
  "This is the command. It trains a GPT over the ranks of a job, plans, simulates"
  "and measures, and tells what ranks wait for.")
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS "${loaded}, openmpi-bin")
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "jargon-text, libsprat-dev")
# Among the system's libraries, so that both are found by their names alone. Neither is the name of a file of NCCL's.
describe(nccl libsprat-nccl2 libs "collectives and sharded training: in the place of NCCL" ${what}
  "This has libsprat_nccl.so.2, with NCCL's interface for programs that were"
  "compiled for it (LD_PRELOAD), and libnccl-net-sprat.so, which NCCL itself loads"
  "by NCCL_NET_PLUGIN=sprat.")
set(CPACK_DEBIAN_NCCL_PACKAGE_RECOMMENDS libfabric1)

# Programs that are linked with a library of ours want its very version: there is no stable binary interface yet.
file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
file(WRITE ${PROJECT_BINARY_DIR}/debian/library/shlibs "libsprat 0 libsprat0 (= ${debian_version})\n")
file(WRITE ${PROJECT_BINARY_DIR}/debian/nccl/shlibs "libsprat_nccl 2 libsprat-nccl2 (= ${debian_version})\n")
foreach(component library nccl)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/debian/triggers
    ${PROJECT_BINARY_DIR}/debian/${component}/shlibs)
endforeach()
# pmix.pc has programs look for libpmix.so.2 in a folder of its own. Debian has a link to it where all libraries are, and
# forbids such paths in packages.
if(pmix_LDFLAGS MATCHES "/usr/lib/[^/]+/pmix2/lib")
  set_target_properties(sprat sprat_cli sprat_nccl sprat_nccl_net PROPERTIES INSTALL_REMOVE_ENVIRONMENT_RPATH ON)
endif()

# The changelog's date is the sources', so that the same sources give the same package.
set(date $ENV{SOURCE_DATE_EPOCH})
if(NOT date)
  execute_process(COMMAND git log -1 --format=%ct WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(date)
  set(ENV{SOURCE_DATE_EPOCH} ${date})
endif()
string(TIMESTAMP debian_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${PROJECT_SOURCE_DIR}/packaging/debian/copyright.in ${PROJECT_BINARY_DIR}/debian/copyright @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/packaging/debian/changelog.in ${PROJECT_BINARY_DIR}/debian/changelog.Debian @ONLY)
find_program(gzip gzip)
if(NOT gzip)
  return()
endif()
execute_process(COMMAND ${gzip} -9nc ${PROJECT_BINARY_DIR}/debian/changelog.Debian
  OUTPUT_FILE ${PROJECT_BINARY_DIR}/debian/changelog.Debian.gz COMMAND_ERROR_IS_FATAL ANY)
# Policy 12.1 has pages compressed. Runs behind install.cmake, which writes them.
install(CODE "file(GLOB pages \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}/man/man1/*.1\")
  execute_process(COMMAND ${gzip} -9nf \${pages} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT command EXCLUDE_FROM_ALL)
set(documents ${CMAKE_INSTALL_DATAROOTDIR}/doc)
install(FILES examples/gpt-jargon.json DESTINATION ${documents}/sprat/examples COMPONENT command EXCLUDE_FROM_ALL)
install(FILES examples/all_gather.c examples/all_gather.cpp examples/data.c examples/sharded_training.cpp
  DESTINATION ${documents}/libsprat-dev/examples COMPONENT development EXCLUDE_FROM_ALL)
include(CPack)
