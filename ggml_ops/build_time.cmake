# What makes the build short; docs/building.md has what each part saves. It changes no kernel's flags, and no result.
#
#   -DDFLASH_UNITY=OFF   every file by itself: after a change in one file less is compiled again
#
# inject.cmake includes this at the end of the top directory, where all targets exist.

include(CheckCXXSourceCompiles)

# Unity builds were tried with gcc and clang; Windows' headers define names that other files use.
if(WIN32)
    option(DFLASH_UNITY "compile related files together" OFF)
else()
    option(DFLASH_UNITY "compile related files together" ON)
endif()

# dflash_unity(target group source...): compile these of the target's sources as one file. Sources that no call names,
# such as those of a newer llama.cpp, stay by themselves.
function(dflash_unity target group)
    if(NOT DFLASH_UNITY)
        return()
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES
        UNITY_GROUP ${group} SKIP_UNITY_BUILD_INCLUSION OFF)
endfunction()

# A target, or groups or sources of it, that run once per file, message or request, or only call others in a pass: a
# third of the compiler's time is saved, and nothing is noticeably later. (A source with options of its own would be in
# no group, so they are the group's.)
function(dflash_compile_quickly target)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
        return()
    endif()
    if(NOT ARGN)
        target_compile_options(${target} PRIVATE -O1)
    endif()
    get_target_property(folder ${target} BINARY_DIR)
    foreach(name ${ARGN})
        if(NOT name MATCHES "[.]cpp$")
            set(name ${folder}/CMakeFiles/${target}.dir/Unity/unity_${name}_cxx.cxx)
        endif()
        set_source_files_properties(${name} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS -O1)
    endforeach()
endfunction()

# gcc looks for memory to free each time that it has taken 30 to 100 % more: with templates up to a seventh of its time.
# Later, it needs up to 900 MiB at once for 670.
function(dflash_compile_in_more_memory target)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(${target} PRIVATE --param=ggc-min-heapsize=400000)
    endif()
endfunction()

# A build for the machine it runs on has no use for instructions that this machine has not (ggml_ops/cpu/isa/).
function(dflash_leave_out_isa target)
    if(NOT GGML_NATIVE OR MSVC OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        return()
    endif()
    set(CMAKE_REQUIRED_FLAGS -march=native)
    foreach(isa "AMX __AMX_INT8__" "AVX512 __AVX512F__")
        separate_arguments(isa)
        list(GET isa 0 name)
        list(GET isa 1 macro)
        check_cxx_source_compiles("#ifndef ${macro}\n#error\n#endif\nint main() { return 0; }" DFLASH_HAS_${name})
        if(NOT DFLASH_HAS_${name})
            target_compile_definitions(${target} PRIVATE DFLASH_NO_${name})
        endif()
    endforeach()
endfunction()

# The target's sources in `folder` whose names match.
function(dflash_sources_of target folder pattern result)
    get_target_property(all ${target} SOURCES)
    get_target_property(home ${target} SOURCE_DIR)
    set(found "")
    foreach(source ${all})
        get_filename_component(path ${source} ABSOLUTE BASE_DIR ${home})
        get_filename_component(place ${path} DIRECTORY)
        get_filename_component(name ${path} NAME)
        if(place STREQUAL folder AND name MATCHES "${pattern}")
            list(APPEND found ${path})
        endif()
    endforeach()
    set(${result} ${found} PARENT_SCOPE)
endfunction()

# llama-common without what llama.cpp's programs alone use: their arguments, downloads and the HTTP client for them, and
# upstream's own drafters; and without its converter of JSON schemas, whose place schema/ takes.
function(dflash_thin_common vendor)
    get_target_property(sources llama-common SOURCES)
    list(FILTER sources EXCLUDE REGEX "^(arg|console|debug|download|hf-cache|imatrix-loader|preset|subproc)\\.cpp$")
    list(FILTER sources EXCLUDE REGEX "^(ngram-.*|speculative)\\.cpp$")
    list(FILTER sources EXCLUDE REGEX "^json-schema(-to-grammar)?\\.cpp$")
    set_target_properties(llama-common PROPERTIES SOURCES "${sources}")
    get_target_property(libraries llama-common LINK_LIBRARIES)
    list(REMOVE_ITEM libraries cpp-httplib)
    set_target_properties(llama-common PROPERTIES LINK_LIBRARIES "${libraries}")
    set_target_properties(cpp-httplib vendor-hash PROPERTIES EXCLUDE_FROM_ALL ON)
    if(CMAKE_SYSTEM_NAME STREQUAL "Linux")   # elsewhere every link is checked like this
        target_link_options(llama-common PRIVATE LINKER:-z,defs)
    endif()

    dflash_sources_of(llama-common ${vendor}/common "^(chat|json-|peg).*cpp$" chat)
    dflash_sources_of(llama-common ${vendor}/common/parsers "cpp$" parsers)
    dflash_unity(llama-common chat ${chat} ${parsers})
    dflash_sources_of(llama-common ${vendor}/common/jinja "cpp$" jinja)
    dflash_sources_of(llama-common ${vendor}/common "^(common|fit|log|reason|s|t|u).*cpp$" rest)
    dflash_unity(llama-common rest ${jinja} ${rest})
    dflash_sources_of(llama-common ${DFLASH_DIR}/schema "cpp$" schema)
    dflash_unity(llama-common schema ${schema})
    dflash_compile_in_more_memory(llama-common)
    dflash_compile_quickly(llama-common)
endfunction()

function(dflash_group_llama vendor)
    dflash_sources_of(llama ${vendor}/src/models "cpp$" models)
    set(index 0)
    foreach(model ${models})
        math(EXPR group "${index} % 3")   # each the third: deepseek4 and glm5-next have names in common
        dflash_unity(llama models_${group} ${model})
        math(EXPR index "${index} + 1")
    endforeach()
    dflash_compile_quickly(llama models_0 models_1 models_2)
    dflash_sources_of(llama ${DFLASH_DIR}/llama "cpp$" ours)
    dflash_unity(llama dflash ${ours})
    dflash_sources_of(llama ${vendor}/src "^llama-(kv|memory).*cpp$" memory)
    dflash_unity(llama memory ${memory})
    dflash_sources_of(llama ${vendor}/src "^llama-(model|arch|hparams|io|mmap|quant|cparams|impl).*cpp$" model)
    dflash_unity(llama model ${model})
    dflash_sources_of(llama ${vendor}/src "^(llama|llama-(adapter|batch|chat|context|graph)).cpp$" context)
    dflash_unity(llama context ${context})
    dflash_sources_of(llama ${vendor}/src "^(llama-vocab|unicode).cpp$" vocab)
    dflash_unity(llama vocab ${vocab})
    dflash_compile_quickly(llama model context vocab)
    # These look at every token of the vocabulary, for every token that is sampled.
    dflash_sources_of(llama ${vendor}/src "^llama-(grammar|sampler).cpp$" sampling)
    dflash_unity(llama sampling ${sampling})
    dflash_compile_in_more_memory(llama)
endfunction()

# What ggml does once per file or graph; RPC waits for the network. The CPU backend's small sources together. Of our
# kernels, those that are compiled for no special instructions; with variants of the CPU backend they are a target of
# their own (inject.cmake).
function(dflash_group_ggml ggml)
    if(TARGET dflash-kernels)
        set(target dflash-kernels)
    else()
        set(target ggml-cpu)
    endif()
    file(GLOB_RECURSE kernels ${DFLASH_DIR}/cpu/*.cpp)
    list(FILTER kernels EXCLUDE REGEX "/cpu/isa/")
    dflash_unity(${target} kernels ${kernels})
    dflash_cpu_targets(variants ${ggml})
    foreach(variant ${variants})
        dflash_sources_of(${variant} ${ggml}/src/ggml-cpu "^(binary-ops|ggml-cpu|hbm|traits|unary-ops|vec).cpp$" small)
        dflash_unity(${variant} small ${small})
    endforeach()
    dflash_sources_of(ggml-base ${ggml}/src "^(gguf|ggml-opt|ggml-backend-meta).cpp$" files)
    dflash_unity(ggml-base files ${files})
    dflash_compile_quickly(ggml-base files)
    if(TARGET ggml-rpc)
        dflash_compile_quickly(ggml-rpc)
    endif()
endfunction()

function(dflash_group_libdflash)
    foreach(folder base engine draft accept tune api files)
        dflash_sources_of(dflash ${DFLASH_DIR}/${folder} "cpp$" ${folder})
    endforeach()
    dflash_sources_of(dflash ${DFLASH_DIR}/files "^(charsmap|chat|gguf).*cpp$" files)
    dflash_sources_of(dflash ${DFLASH_DIR}/accept "^(format_patterns|sampling_params|trigger_search).cpp$" requests)
    list(REMOVE_ITEM accept ${requests})
    dflash_unity(dflash drafts ${draft} ${accept})
    dflash_unity(dflash engine ${engine} ${tune} ${api})
    dflash_unity(dflash requests ${base} ${requests})
    dflash_unity(dflash files ${files})
    dflash_compile_in_more_memory(dflash)
    dflash_compile_quickly(dflash engine requests files)
endfunction()
