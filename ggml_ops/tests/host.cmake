# The tests on this machine.
#
#   -DDFLASH_CPU_VARIANT   where the build has all variants of the CPU backend: the one to test, such as haswell

include(CheckIncludeFileCXX)
include(${DFLASH_DIR}/build_time.cmake)

add_library(built INTERFACE)
if(WIN32)   # which looks for libraries beside the program
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${DFLASH_LIBRARIES})
else()
    target_link_options(built INTERFACE -Wl,-rpath,${DFLASH_LIBRARIES})
endif()
# Of a build with all variants of the CPU backend, one: DFLASH_CPU_VARIANT.
set(cpu ggml-cpu)
if(DFLASH_CPU_VARIANT)
    set(cpu ggml-cpu-${DFLASH_CPU_VARIANT})
endif()
foreach(name dflash llama-common llama ggml ${cpu} ggml-base)
    find_library(path_of_${name} ${name} PATHS ${DFLASH_LIBRARIES} NO_DEFAULT_PATH REQUIRED)
    target_link_libraries(built INTERFACE ${path_of_${name}})
endforeach()

# Object libraries, so that everything is linked and the built ggml calls these kernels instead of its own copies. They
# come first, since their files take the longest.
add_library(kernels OBJECT ${CPU_SOURCES})
target_link_libraries(kernels PUBLIC checked)
set(GGML_NATIVE ON)   # the tests run where they are compiled
dflash_leave_out_isa(kernels)

# AddressSanitizer checks accesses with calls, not inline: this compiles faster and runs slower, so it is for files
# whose code rarely runs.
if(DFLASH_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT CMAKE_CROSSCOMPILING)
    set(by_calls ${DFLASH_DIR}/grammar/trigger_search.cpp ${CMAKE_CURRENT_SOURCE_DIR}/pure/test_trigger_search.cpp
        ${CMAKE_CURRENT_SOURCE_DIR}/built/kernels/test_panels.cpp)
    set_source_files_properties(${by_calls} PROPERTIES
        COMPILE_OPTIONS --param=asan-instrumentation-with-call-threshold=0)
endif()

# The files that tests in pure/ need, by name: compiling everything else with the sanitizers takes minutes. The linker
# reports missing ones. A static library links only what a test uses, so these tests show that the code needs no
# llama.cpp.
dflash_named(sources
    accept block_accept logits_row token_probs
    budget choice cost_curve steady_size
    cpu/threads background team_size waiting
    draft calibration corpus draft_vocabulary draft_window earlier_answers kv_history lookup prediction
    quotation tree_growth
    cache conversation host_cache sequence slot_file
    engine controller slot tree_padding verified_tree
    files charsmap drafter_check embedding_check gguf_check gguf_file projector_check
    grammar gbnf trigger_search
    media encoder_turns media_table media_text
    schema automaton decimal pattern)
add_library(parts STATIC ${sources})
target_include_directories(parts SYSTEM PRIVATE ${LLAMA_SOURCE}/src)
target_link_libraries(parts PUBLIC checked)

# What the tests in built/sampling also need.
dflash_named(sources
    accept format_patterns sampling sampling_params
    base error ignored_fields json_fields tokenize
    grammar token_constraints)
add_library(sampler STATIC EXCLUDE_FROM_ALL ${sources})
target_include_directories(sampler SYSTEM PRIVATE ${LLAMA_SOURCE}/src)
target_link_libraries(sampler PUBLIC parts)

# What the tests in built/parts also need.
dflash_named(sources budget costs draft graph kv_ring)
add_library(hidden_parts STATIC EXCLUDE_FROM_ALL ${sources})
target_link_libraries(hidden_parts PUBLIC parts)

# What is below the engine, and the text that it measures that with, for the tests in built/below_engine.
dflash_sources(sources cache target draft base)
dflash_named(text engine sample_text)
add_library(below_engine STATIC EXCLUDE_FROM_ALL ${sources} ${text})
target_include_directories(below_engine SYSTEM PRIVATE ${LLAMA_SOURCE}/src)
target_link_libraries(below_engine PUBLIC parts common)

dflash_named(sources draft calibration corpus earlier_answers lookup quotation tree_growth)
add_library(timed_draft STATIC ${sources})
target_link_libraries(timed_draft PUBLIC timed)

# Never built: clang-tidy reads the flags of all our sources from compile_commands.json.
dflash_sources(sources base engine cache target budget draft accept grammar media tune api files llama schema
    thin_common gdn gdn/cpu transfers plan modules)
add_library(all_sources OBJECT EXCLUDE_FROM_ALL ${sources} ${CPU_SOURCES})
target_include_directories(all_sources SYSTEM PRIVATE ${LLAMA_SOURCE}/src)
target_compile_definitions(all_sources PRIVATE DFLASH_BUILD GGML_USE_CPU_DFLASH)
target_link_libraries(all_sources PRIVATE common)

# The emulation of CUDA needs ucontext.
check_include_file_cxx(ucontext.h HAVE_UCONTEXT)
if(HAVE_UCONTEXT)
    include(cuda.cmake)
endif()

dflash_programs(pure parts)
dflash_programs(built/ops checked built)
dflash_programs(built/kernels kernels built)
dflash_programs(built/engine checked built)
dflash_programs(built/parts hidden_parts built)
dflash_programs(built/below_engine below_engine built)
dflash_programs(built/sampling sampler built)
dflash_programs(timing timed_draft built)
dflash_slow_programs(test_sampling time_attention time_panels time_products)

dflash_tests(pure)
dflash_tests(built/ops)
dflash_tests(built/kernels)
dflash_tests(built/parts)
dflash_tests(built/engine ${DEMO_DIR}/pocket-target.gguf)
dflash_tests(built/below_engine ${DEMO_DIR}/pocket-target.gguf)
dflash_tests(timing)
set_tests_properties(lookup_time tree_growth_time PROPERTIES RUN_SERIAL ON)

# Cases that the programs skip by default.
dflash_whole_test(op_fusion all)
dflash_whole_test(gguf_check 4000)
dflash_whole_test(trigger_search 4000)
dflash_whole_test(gdn_ops all)

# All draws of the sampler are compared with llama.cpp's: 200 per case, more than 100,000 in total.
dflash_outcome(sampling STATUS 0 OUTPUT "[1-9][0-9][0-9][0-9][0-9][0-9]+ draws agree"
    COMMAND test_sampling ${DEMO_DIR}/pocket-target.gguf 200)
set_tests_properties(sampling PROPERTIES LABELS slow TIMEOUT 600)

# Without ours, RoPE is ggml's also where it is fused with a norm.
add_test(NAME op_fusion_with_stock_rope COMMAND test_op_fusion 1)
dflash_settings(op_fusion_with_stock_rope)
set_property(TEST op_fusion_with_stock_rope APPEND PROPERTY ENVIRONMENT DFLASH_ROPE=0)

# The same programs detect errors: stock kernels compute a row differently in other passes ...
dflash_outcome(row_invariance_of_stock_products STATUS 1 OUTPUT "rows differ" COMMAND test_row_invariance "MUL_MAT f16")
set_property(TEST row_invariance_of_stock_products APPEND PROPERTY ENVIRONMENT DFLASH_FLOAT_GEMM=0)
dflash_outcome(row_invariance_of_stock_attention STATUS 1 OUTPUT "rows differ"
    COMMAND test_row_invariance "attention without flash attention f16")
set_property(TEST row_invariance_of_stock_attention APPEND PROPERTY ENVIRONMENT DFLASH_ATTENTION=0)
# ... products of the same input are not made adjacent ...
dflash_outcome(op_fusion_without_fusion STATUS "[1-9][0-9]*" COMMAND test_op_fusion 1)
set_property(TEST op_fusion_without_fusion APPEND PROPERTY ENVIRONMENT DFLASH_FUSED=0)
# ... a parent is wrong, or comes later.
dflash_outcome(gdn_ops_wrong_parent STATUS 1 COMMAND test_gdn_ops wrong-parent)
dflash_outcome(gdn_ops_bad_parent STATUS "Subprocess aborted|Child aborted|3" OUTPUT "gdn_tree: bad parent"
    COMMAND test_gdn_ops bad-parent)
