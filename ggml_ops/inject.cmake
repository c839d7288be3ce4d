# Adds libdflash to llama-cpp-python's own build.
#
# Included at the package's project() call (CMAKE_PROJECT_llama_cpp_INCLUDE), before any of its targets exist; the
# deferred call runs at the end of the top directory, when they all do.

include(CheckCXXCompilerFlag)

set(DFLASH_DIR ${CMAKE_CURRENT_LIST_DIR} CACHE INTERNAL "dflash-local's ggml_ops")

# Metal compiles its kernels from single files in its own folder, on the user's machine: one of ours joins them (patches/0006).
if(APPLE)
    file(READ ${DFLASH_DIR}/ops/gdn_tree_steps.h GDN_TREE_STEPS)
    configure_file(${DFLASH_DIR}/ops/gdn_tree.metal ${CMAKE_CURRENT_SOURCE_DIR}/vendor/llama.cpp/ggml/src/ggml-metal/kernels/gdn_tree.metal @ONLY)
endif()

function(dflash_add_ops vendor)
    target_sources(ggml-base PRIVATE ${DFLASH_DIR}/ops/gdn_tree.cpp ${DFLASH_DIR}/ops/gdn_tree_composed.cpp)
    get_property(all DIRECTORY ${vendor}/ggml/src PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${all})
        if(target MATCHES "^ggml-cpu")
            target_sources(${target} PRIVATE ${DFLASH_DIR}/ops/gdn_tree_cpu.cpp)
        endif()
    endforeach()
    foreach(target llama ggml-cuda ggml-hip ggml-metal)
        if(TARGET ${target})
            target_include_directories(${target} PRIVATE ${DFLASH_DIR}/ops)
        endif()
    endforeach()
    foreach(target ggml-cuda ggml-hip)
        if(TARGET ${target})
            target_sources(${target} PRIVATE ${DFLASH_DIR}/ops/gdn_tree_cuda.cu)
            target_include_directories(${target} PRIVATE ${vendor}/ggml/src ${vendor}/ggml/src/ggml-cuda)
        endif()
    endforeach()
    if(TARGET ggml-hip)   # HIP or, where hipcc is the C++ compiler, CXX: as the backend's own sources
        get_source_file_property(language ${vendor}/ggml/src/ggml-cuda/wkv.cu TARGET_DIRECTORY ggml-hip LANGUAGE)
        set_source_files_properties(${DFLASH_DIR}/ops/gdn_tree_cuda.cu TARGET_DIRECTORY ggml-hip PROPERTIES LANGUAGE ${language})
    endif()
    if(TARGET ggml-metal)
        target_sources(ggml-metal PRIVATE ${DFLASH_DIR}/ops/gdn_tree_metal.cpp)
        target_include_directories(ggml-metal PRIVATE ${vendor}/ggml/src/ggml-metal)
    endif()
endfunction()

function(dflash_add_targets)
    if(NOT TARGET llama OR NOT TARGET llama-common)
        message(FATAL_ERROR "dflash: llama and llama-common are not part of this build")
    endif()
    set(vendor ${CMAKE_CURRENT_SOURCE_DIR}/vendor/llama.cpp)

    # What looks inside llama.cpp is part of libllama, because other platforms than ELF hide its internals: the engine's window into it, and the
    # tapes of recurrent memories (patches/0007 calls them).
    set(inside ${DFLASH_DIR}/src/llama_access.cpp ${DFLASH_DIR}/src/state_tape.cpp ${DFLASH_DIR}/src/tape_graph.cpp)
    target_sources(llama PRIVATE ${inside})
    set_source_files_properties(${inside} TARGET_DIRECTORY llama PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_include_directories(llama PRIVATE ${DFLASH_DIR}/src)

    # Our kernels are part of ggml's CPU backend, of every variant of it that is built (patches/0005 calls them). What ggml has for AVX512-FP16 adds up
    # in half precision and leaves heads of 64 to code without vectors; none of its own variants uses it, only a native build.
    check_cxx_compiler_flag(-mno-avx512fp16 DFLASH_HAS_NO_AVX512FP16)
    get_property(all DIRECTORY ${vendor}/ggml/src PROPERTY BUILDSYSTEM_TARGETS)
    file(GLOB ops CONFIGURE_DEPENDS ${DFLASH_DIR}/ops/*.cpp ${DFLASH_DIR}/ops/*.h)
    list(FILTER ops EXCLUDE REGEX "/gdn_")
    foreach(target ${all})
        if(target MATCHES "^ggml-cpu")
            target_sources(${target} PRIVATE ${ops})
            target_include_directories(${target} PRIVATE ${DFLASH_DIR}/ops ${vendor}/ggml/src ${vendor}/ggml/src/ggml-cpu)
            target_compile_definitions(${target} PRIVATE GGML_USE_CPU_DFLASH)
            if(DFLASH_HAS_NO_AVX512FP16)
                target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-mno-avx512fp16>)
            endif()
        endif()
    endforeach()

    # Buffers of all CPU backends come from ggml-base (patches/0012).
    target_include_directories(ggml-base PRIVATE ${DFLASH_DIR}/ops)
    target_compile_definitions(ggml-base PRIVATE GGML_USE_CPU_DFLASH)

    # Ops of our own are made in ggml-base and have a kernel in each backend that we know. Without patches/0006 there is no op to make.
    file(STRINGS ${vendor}/ggml/include/ggml.h has_ops REGEX GGML_OP_GDN_TREE)
    if(has_ops)
        dflash_add_ops(${vendor})
    endif()

    file(GLOB sources CONFIGURE_DEPENDS ${DFLASH_DIR}/src/*.cpp ${DFLASH_DIR}/src/*.h)
    list(REMOVE_ITEM sources ${inside})
    add_library(dflash SHARED ${DFLASH_DIR}/include/dflash.h ${sources})
    target_compile_features(dflash PRIVATE cxx_std_17)
    target_compile_definitions(dflash PRIVATE DFLASH_BUILD)
    set_target_properties(dflash PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
    target_include_directories(dflash PUBLIC ${DFLASH_DIR}/include PRIVATE ${DFLASH_DIR}/src ${vendor} ${vendor}/src ${vendor}/vendor)
    target_link_libraries(dflash PRIVATE llama llama-common)
    if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
        target_compile_options(dflash PRIVATE -Wall -Wextra -Wno-unused-parameter)
    endif()

    # An abort callback that throws must be able to unwind through ggml's C files (src/guard.h).
    foreach(target ggml-base ggml-cpu ggml)
        if(TARGET ${target} AND NOT MSVC)
            target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fexceptions>)
        endif()
    endforeach()

    llama_cpp_python_install_target(llama-common)
    llama_cpp_python_install_target(dflash)
endfunction()

cmake_language(DEFER CALL dflash_add_targets)
