# ggml's CPU backend with our kernels, and their tests, for a 64-bit ARM with only NEON: everything else must be
# detected at run time.

set(CMAKE_C_FLAGS_RELEASE "-O3")     # as Release, with assertions
set(CMAKE_CXX_FLAGS_RELEASE "-O3")

# Adds them like inject.cmake.
set(GGML_NATIVE OFF)
set(GGML_LLAMAFILE OFF)
set(BUILD_SHARED_LIBS OFF)
set(GGML_OPENMP OFF)
add_subdirectory(${LLAMA_SOURCE}/ggml ggml EXCLUDE_FROM_ALL)
dflash_sources(sources gdn/cpu)
target_sources(ggml-cpu PRIVATE ${sources} ${CPU_SOURCES})
dflash_sources(sources gdn transfers plan)
target_sources(ggml-base PRIVATE ${sources})
dflash_sources(sources modules)
target_sources(ggml PRIVATE ${sources})
target_include_directories(ggml PRIVATE ${DFLASH_DIR})
target_include_directories(ggml-base PRIVATE ${DFLASH_DIR})
target_include_directories(ggml-cpu PRIVATE ${DFLASH_DIR} ${LLAMA_SOURCE}/ggml/src ${LLAMA_SOURCE}/ggml/src/ggml-cpu)
target_compile_definitions(ggml-cpu PRIVATE GGML_USE_CPU_DFLASH)

# Only what the tests below run is built.
dflash_programs(built/kernels common ggml-cpu ggml-base -static)
dflash_programs(built/ops common ggml ggml-cpu ggml-base -static)

# emulated(name PROCESSOR name OUTPUT regex LABELS labels COMMAND program argument...)
function(emulated name)
    cmake_parse_arguments(PARSE_ARGV 1 test "" "PROCESSOR;OUTPUT;LABELS" "COMMAND")
    list(POP_FRONT test_COMMAND program)
    set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL OFF)
    add_test(NAME ${name}_${test_PROCESSOR} COMMAND ${CMAKE_COMMAND} -DSTATUS=0 "-DOUTPUT=${test_OUTPUT}"
        -P ${CMAKE_CURRENT_SOURCE_DIR}/outcome.cmake --
        ${DFLASH_EMULATOR} -cpu ${test_PROCESSOR} $<TARGET_FILE:${program}> ${test_COMMAND})
    set_tests_properties(${name}_${test_PROCESSOR} PROPERTIES LABELS "${test_LABELS}" TIMEOUT 600)
endfunction()

# The choice at run time: a missing instruction would end the program. With i8mm, the same bits as with dotprod, for all
# 22 types.
emulated(panels PROCESSOR cortex-a76 OUTPUT "(^|\n)22 kernels" COMMAND test_panels)
emulated(panels PROCESSOR cortex-a72 LABELS slow OUTPUT "(^|\n)0 kernels" COMMAND test_panels)
emulated(panels PROCESSOR max LABELS slow OUTPUT "(^|\n)44 kernels" COMMAND test_panels)

# Through ggml's CPU backend: attention with and without the fused op, products with float and packed weights, and fused
# ops.
foreach(name flash_attention products attention_no_flash)
    emulated(${name} PROCESSOR cortex-a72 LABELS slow COMMAND test_${name})
    emulated(${name} PROCESSOR max LABELS slow COMMAND test_${name})
endforeach()
emulated(op_fusion PROCESSOR cortex-a76 COMMAND test_op_fusion 1)
emulated(op_fusion PROCESSOR cortex-a72 LABELS slow COMMAND test_op_fusion all 1)
