# Adds libdflash to llama-cpp-python's own build.
#
# Included at the package's project() call (CMAKE_PROJECT_llama_cpp_INCLUDE), before any of its targets exist; the
# deferred call runs at the end of the top directory, when all of them do.
#
# Each folder of ggml_ops belongs to one library as a whole:
#   libdflash   base engine cache mtp target budget draft accept grammar tune api files media
#   libllama    llama                llama-common          schema thin_common
#   ggml-base   gdn transfers plan
#   ggml        modules
#   ggml-cpu    cpu gdn/cpu          ggml-cuda, ggml-hip   gdn/cuda gemm/cuda top_k/cuda
#   ggml-metal  gdn/metal
#   ggml-rpc    rpc
#   ggml-vulkan gdn/vulkan
#
# With GGML_BACKEND_DL, backends are modules that libggml loads. With GGML_CPU_ALL_VARIANTS there is one CPU backend per
# instruction set, or only those in -DDFLASH_CPU_VARIANTS='x64;haswell'. -DDFLASH_SYSROOT=DIR links against the older C
# library in DIR and adds glibc/ and libstdc++ to each library (docs/building.md#wheels).

include(CheckCXXCompilerFlag)
include(CheckSymbolExists)
include(${CMAKE_CURRENT_LIST_DIR}/build_time.cmake)

set(DFLASH_DIR ${CMAKE_CURRENT_LIST_DIR} CACHE INTERNAL "dflash-local's ggml_ops")

# gcc for Windows assumes that the stack is aligned for vectors of 32 and 64 bytes, which is not the case there (bug
# 54412): the assembler turns aligned moves into unaligned ones, which are as fast.
if(MINGW AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wa,-muse-unaligned-vector-move)
endif()

# Metal compiles its kernels on the user's machine, from single files in its own folder, so ours has to be put there
# (patches/0006).
if(APPLE)
    file(READ ${DFLASH_DIR}/gdn/gdn_geometry.h GDN_GEOMETRY)
    file(READ ${DFLASH_DIR}/gdn/gdn_tree_gpu.h GDN_TREE_GPU)
    configure_file(${DFLASH_DIR}/gdn/metal/gdn_tree.metal
        ${CMAKE_CURRENT_SOURCE_DIR}/vendor/llama.cpp/ggml/src/ggml-metal/kernels/gdn_tree.metal @ONLY)
endif()

# The same for Vulkan's shader generator, which compiles the shaders of one folder (patches/0016).
if(GGML_VULKAN)
    foreach(file gdn_geometry.h vulkan/gdn_tree.comp vulkan/gdn_commit.comp)
        get_filename_component(name ${file} NAME)
        configure_file(${DFLASH_DIR}/gdn/${file}
            ${CMAKE_CURRENT_SOURCE_DIR}/vendor/llama.cpp/ggml/src/ggml-vulkan/vulkan-shaders/${name} COPYONLY)
    endforeach()
endif()

# Adds the sources of a folder to a target of llama.cpp. glob: GLOB, or GLOB_RECURSE for its sub-folders too.
function(dflash_join target glob folder)
    file(${glob} sources CONFIGURE_DEPENDS ${DFLASH_DIR}/${folder}/*.cpp ${DFLASH_DIR}/${folder}/*.cu)
    target_sources(${target} PRIVATE ${sources})
    target_include_directories(${target} PRIVATE ${DFLASH_DIR} ${ARGN})
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Kernels that choose their instructions at run time: compiled once for all variants of the CPU backend.
function(dflash_add_kernels ggml)
    add_library(dflash-kernels OBJECT)
    dflash_join(dflash-kernels GLOB_RECURSE cpu ${ggml}/src ${ggml}/src/ggml-cpu ${ggml}/include)
    target_compile_features(dflash-kernels PRIVATE cxx_std_17)
    target_compile_definitions(dflash-kernels PRIVATE GGML_BACKEND_DL GGML_BACKEND_BUILD GGML_BACKEND_SHARED)
    set_target_properties(dflash-kernels PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# Our kernels are part of every variant of ggml's CPU backend (patches/0005 calls them).
function(dflash_join_cpu target ggml)
    if(TARGET dflash-kernels)
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:dflash-kernels>)
        target_include_directories(${target} PRIVATE ${DFLASH_DIR})
    else()
        dflash_join(${target} GLOB_RECURSE cpu ${ggml}/src ${ggml}/src/ggml-cpu)
    endif()
    dflash_join(${target} GLOB gdn/cpu ${ggml}/src ${ggml}/src/ggml-cpu)
    target_compile_definitions(${target} PRIVATE GGML_USE_CPU_DFLASH)
    # On Windows 8 and later, ggml disables throttling of its threads, with a struct that mingw-w64 has since 11.
    if(MINGW)
        check_symbol_exists(THREAD_POWER_THROTTLING_CURRENT_VERSION windows.h DFLASH_HAS_THREAD_THROTTLING)
        if(NOT DFLASH_HAS_THREAD_THROTTLING)
            target_compile_definitions(${target} PRIVATE _WIN32_WINNT=0x0601)
        endif()
    endif()
    # ggml's code for AVX512-FP16 sums in half precision and does not vectorize heads of 64. None of its own variants
    # uses it, only native builds.
    check_cxx_compiler_flag(-mno-avx512fp16 DFLASH_HAS_NO_AVX512FP16)
    if(DFLASH_HAS_NO_AVX512FP16)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-mno-avx512fp16>)
    endif()
    dflash_leave_out_isa(${target})
endfunction()

# The CPU backend, or the modules of its variants.
function(dflash_cpu_targets variable ggml)
    get_property(targets DIRECTORY ${ggml}/src PROPERTY BUILDSYSTEM_TARGETS)
    list(FILTER targets INCLUDE REGEX "^ggml-cpu")
    list(FILTER targets EXCLUDE REGEX "-feats$")   # what a variant asks of the processor, without ours
    if(DFLASH_CPU_VARIANTS)
        list(TRANSFORM DFLASH_CPU_VARIANTS PREPEND ggml-cpu- OUTPUT_VARIABLE wanted)
        foreach(target ${targets})
            if(NOT target IN_LIST wanted)
                # ggml's own lists contain it: it becomes an empty module, which is not installed.
                set_property(TARGET ${target} PROPERTY SOURCES ${DFLASH_DIR}/modules/nothing.c)
                set_property(TARGET ${target} PROPERTY LINK_LIBRARIES)
            endif()
        endforeach()
        set(targets ${wanted})
    endif()
    set(${variable} ${targets} PARENT_SCOPE)
endfunction()

# Adds our ops and kernels to ggml's libraries.
function(dflash_join_ggml ggml)
    dflash_join(ggml-base GLOB gdn)
    dflash_join(ggml-base GLOB transfers)
    dflash_join(ggml-base GLOB plan ${ggml}/src)
    dflash_join(ggml GLOB modules)
    if(GGML_CPU_ALL_VARIANTS)
        dflash_add_kernels(${ggml})
    endif()
    dflash_cpu_targets(variants ${ggml})
    foreach(target ${variants})
        dflash_join_cpu(${target} ${ggml})
    endforeach()
    foreach(target ggml-cuda ggml-hip)
        if(TARGET ${target})
            dflash_join(${target} GLOB gdn/cuda ${ggml}/src ${ggml}/src/ggml-cuda)
            dflash_join(${target} GLOB gemm/cuda)
            dflash_join(${target} GLOB top_k/cuda)
        endif()
    endforeach()
    if(TARGET ggml-hip)   # HIP or, where hipcc is the C++ compiler, CXX: as the backend's own sources
        get_source_file_property(language ${ggml}/src/ggml-cuda/wkv.cu TARGET_DIRECTORY ggml-hip LANGUAGE)
        file(GLOB kernels ${DFLASH_DIR}/gdn/cuda/*.cu ${DFLASH_DIR}/gemm/cuda/*.cu ${DFLASH_DIR}/top_k/cuda/*.cu)
        set_source_files_properties(${kernels} TARGET_DIRECTORY ggml-hip PROPERTIES LANGUAGE ${language})
    endif()
    if(TARGET ggml-vulkan)
        dflash_join(ggml-vulkan GLOB gdn/vulkan ${ggml}/src/ggml-vulkan)
    endif()
    if(TARGET ggml-metal)
        dflash_join(ggml-metal GLOB gdn/metal ${ggml}/src/ggml-metal)
    endif()
    if(TARGET ggml-rpc)
        dflash_join(ggml-rpc GLOB rpc ${ggml}/src ${ggml}/src/ggml-rpc)
    endif()
endfunction()

function(dflash_add_library vendor)
    foreach(folder base engine cache mtp target budget draft accept grammar tune api files media)
        file(GLOB found CONFIGURE_DEPENDS ${DFLASH_DIR}/${folder}/*.cpp)
        list(APPEND sources ${found})
    endforeach()
    add_library(dflash SHARED ${sources})
    target_compile_features(dflash PRIVATE cxx_std_17)
    target_compile_definitions(dflash PRIVATE DFLASH_BUILD)
    set_target_properties(dflash PROPERTIES
        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
    target_include_directories(dflash
        PUBLIC ${DFLASH_DIR}/include PRIVATE ${DFLASH_DIR} ${vendor} ${vendor}/src ${vendor}/vendor)
    target_link_libraries(dflash PRIVATE llama llama-common mtmd)
    if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
        target_compile_options(dflash PRIVATE -Wall -Wextra -Wno-unused-parameter)
    endif()
endfunction()

# Installs gcc's runtime libraries on Windows, since users do not have them without that compiler.
function(dflash_add_runtime)
    get_filename_component(compilers ${CMAKE_CXX_COMPILER} DIRECTORY)
    foreach(name libstdc++-6.dll libgcc_s_seh-1.dll libwinpthread-1.dll)
        execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name}
            OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
        if(NOT IS_ABSOLUTE "${file}" OR NOT EXISTS "${file}")
            set(file ${compilers}/${name})
        endif()
        if(EXISTS "${file}")
            file(COPY ${file} DESTINATION ${CMAKE_BINARY_DIR}/bin)
            install(FILES ${file} DESTINATION ${SKBUILD_PLATLIB_DIR}/llama_cpp/lib)
        endif()
    endforeach()
endfunction()

# Modules are installed beside libggml.
function(dflash_install_modules variants)
    foreach(target ${variants})
        llama_cpp_python_install_target(${target})
        if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
            # gcc makes some variables unique in the process; all variants would use those of the first one loaded.
            target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)
        endif()
    endforeach()
endfunction()

# Libraries are installed under a single name each: wheels have no links, so three names would be three copies. They find
# each other by that name, in their own folder.
function(dflash_install_one_name)
    foreach(target ${ARGN})
        set_property(TARGET ${target} PROPERTY VERSION)
        set_property(TARGET ${target} PROPERTY SOVERSION)
    endforeach()
endfunction()

# All libraries of the package.
function(dflash_libraries variable)
    set(libraries "")
    foreach(target ggml-base ggml ggml-rpc ggml-cuda ggml-hip ggml-vulkan ggml-metal ggml-blas llama llama-common mtmd dflash
            ${ARGN})
        if(TARGET ${target})
            list(APPEND libraries ${target})
        endif()
    endforeach()
    set(${variable} ${libraries} PARENT_SCOPE)
endfunction()

# Compiled as usual but linked against an older C library, so that the result also runs there.
function(dflash_link_older_glibc)
    add_library(dflash-glibc OBJECT ${DFLASH_DIR}/glibc/older_glibc.c)
    target_compile_options(dflash-glibc PRIVATE -fno-builtin)
    set_target_properties(dflash-glibc PROPERTIES POSITION_INDEPENDENT_CODE ON)
    set(multiarch ${CMAKE_LIBRARY_ARCHITECTURE})
    set(folder ${DFLASH_SYSROOT}/usr/lib/${multiarch})
    foreach(target ${ARGN})
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:dflash-glibc>)
        target_link_options(${target} PRIVATE --sysroot=${DFLASH_SYSROOT} -B${folder} -L${folder}
            -L${DFLASH_SYSROOT}/lib/${multiarch} -static-libstdc++ -Wl,--exclude-libs,libstdc++.a -Wl,--no-undefined)
        target_link_libraries(${target} PRIVATE m dl pthread)
    endforeach()
endfunction()

function(dflash_add_targets)
    if(NOT TARGET llama OR NOT TARGET llama-common)
        message(FATAL_ERROR "dflash: llama and llama-common are not part of this build")
    endif()
    set(vendor ${CMAKE_CURRENT_SOURCE_DIR}/vendor/llama.cpp)

    # Code that uses llama.cpp's internals is part of libllama, because platforms other than ELF hide them.
    dflash_join(llama GLOB llama ${DFLASH_DIR}/include)
    dflash_join(llama-common GLOB schema ${vendor})
    dflash_join(llama-common GLOB thin_common ${vendor})
    dflash_join_ggml(${vendor}/ggml)
    dflash_add_library(${vendor})

    # An abort callback that throws must be able to unwind through ggml's C files (base/abort_guard.h).
    dflash_cpu_targets(variants ${vendor}/ggml)
    if(NOT MSVC)
        foreach(target ggml-base ${variants} ggml)
            target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fexceptions>)
        endforeach()
    endif()

    dflash_thin_common(${vendor})
    dflash_group_llama(${vendor})
    dflash_group_ggml(${vendor}/ggml)
    dflash_group_libdflash()

    llama_cpp_python_install_target(llama-common)
    llama_cpp_python_install_target(dflash)
    dflash_libraries(libraries ${variants})
    dflash_install_one_name(${libraries})
    if(GGML_BACKEND_DL)
        dflash_install_modules("${variants}")
    endif()
    if(DFLASH_SYSROOT)
        dflash_link_older_glibc(${libraries})
    endif()
    if(MINGW)
        dflash_add_runtime()
    endif()
endfunction()

cmake_language(DEFER CALL dflash_add_targets)
