# Adds libdflash to llama-cpp-python's own build.
#
# Included at the package's project() call (CMAKE_PROJECT_llama_cpp_INCLUDE), before any of its targets exist; the
# deferred call runs at the end of the top directory, when they all do.
#
# Each folder of ggml_ops belongs to one library as a whole:
#   libdflash   base engine draft accept tune api files
#   libllama    llama
#   ggml-base   gdn
#   ggml-cpu    cpu gdn/cpu          ggml-cuda, ggml-hip   gdn/cuda          ggml-metal   gdn/metal

include(CheckCXXCompilerFlag)

set(DFLASH_DIR ${CMAKE_CURRENT_LIST_DIR} CACHE INTERNAL "dflash-local's ggml_ops")

# Metal compiles its kernels from single files in its own folder, on the user's machine: one of ours joins them
# (patches/0006).
if(APPLE)
    file(READ ${DFLASH_DIR}/gdn/gdn_tree_gpu.h GDN_TREE_GPU)
    configure_file(${DFLASH_DIR}/gdn/metal/gdn_tree.metal
        ${CMAKE_CURRENT_SOURCE_DIR}/vendor/llama.cpp/ggml/src/ggml-metal/kernels/gdn_tree.metal @ONLY)
endif()

# The sources of a folder join a target of llama.cpp. glob: GLOB, or GLOB_RECURSE with those of its sub-folders.
function(dflash_join target glob folder)
    file(${glob} sources CONFIGURE_DEPENDS ${DFLASH_DIR}/${folder}/*.cpp ${DFLASH_DIR}/${folder}/*.cu)
    target_sources(${target} PRIVATE ${sources})
    target_include_directories(${target} PRIVATE ${DFLASH_DIR} ${ARGN})
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Our kernels are part of every variant of ggml's CPU backend that is built (patches/0005 calls them).
function(dflash_join_cpu target ggml)
    dflash_join(${target} GLOB_RECURSE cpu ${ggml}/src ${ggml}/src/ggml-cpu)
    dflash_join(${target} GLOB gdn/cpu ${ggml}/src ${ggml}/src/ggml-cpu)
    target_compile_definitions(${target} PRIVATE GGML_USE_CPU_DFLASH)
    # What ggml has for AVX512-FP16 adds up in half precision and leaves heads of 64 to code without vectors; none of
    # its own variants uses it, only a native build.
    check_cxx_compiler_flag(-mno-avx512fp16 DFLASH_HAS_NO_AVX512FP16)
    if(DFLASH_HAS_NO_AVX512FP16)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-mno-avx512fp16>)
    endif()
endfunction()

# Our ops and kernels, in the library of ggml that each belongs to.
function(dflash_join_ggml ggml)
    dflash_join(ggml-base GLOB gdn)
    get_property(targets DIRECTORY ${ggml}/src PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
        if(target MATCHES "^ggml-cpu")
            dflash_join_cpu(${target} ${ggml})
        endif()
    endforeach()
    foreach(target ggml-cuda ggml-hip)
        if(TARGET ${target})
            dflash_join(${target} GLOB gdn/cuda ${ggml}/src ${ggml}/src/ggml-cuda)
        endif()
    endforeach()
    if(TARGET ggml-hip)   # HIP or, where hipcc is the C++ compiler, CXX: as the backend's own sources
        get_source_file_property(language ${ggml}/src/ggml-cuda/wkv.cu TARGET_DIRECTORY ggml-hip LANGUAGE)
        file(GLOB kernels ${DFLASH_DIR}/gdn/cuda/*.cu)
        set_source_files_properties(${kernels} TARGET_DIRECTORY ggml-hip PROPERTIES LANGUAGE ${language})
    endif()
    if(TARGET ggml-metal)
        dflash_join(ggml-metal GLOB gdn/metal ${ggml}/src/ggml-metal)
    endif()
endfunction()

function(dflash_add_library vendor)
    foreach(folder base engine draft accept tune api files)
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
    target_link_libraries(dflash PRIVATE llama llama-common)
    if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
        target_compile_options(dflash PRIVATE -Wall -Wextra -Wno-unused-parameter)
    endif()
endfunction()

function(dflash_add_targets)
    if(NOT TARGET llama OR NOT TARGET llama-common)
        message(FATAL_ERROR "dflash: llama and llama-common are not part of this build")
    endif()
    set(vendor ${CMAKE_CURRENT_SOURCE_DIR}/vendor/llama.cpp)

    # What looks inside llama.cpp is part of libllama, because other platforms than ELF hide its internals.
    dflash_join(llama GLOB llama)
    dflash_join_ggml(${vendor}/ggml)
    dflash_add_library(${vendor})

    # An abort callback that throws must be able to unwind through ggml's C files (base/abort_guard.h).
    foreach(target ggml-base ggml-cpu ggml)
        if(TARGET ${target} AND NOT MSVC)
            target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fexceptions>)
        endif()
    endforeach()

    llama_cpp_python_install_target(llama-common)
    llama_cpp_python_install_target(dflash)
endfunction()

cmake_language(DEFER CALL dflash_add_targets)
