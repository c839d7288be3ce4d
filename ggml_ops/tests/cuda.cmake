# The CUDA kernels as C++, on an emulation of CUDA's threads (cuda/emulated_cuda.h). No GPU is involved.

# emulated_cuda_text(variable text): replaces syntax that C++ does not have with calls of the emulation.
function(emulated_cuda_text variable text)
    string(REGEX REPLACE "extern __shared__ ([a-z0-9_ ]+) ([a-z0-9_]+)\\[\\];"
        "\\1 * const \\2 = (\\1 *) emulated_cuda::shared_memory();" text "${text}")
    string(REGEX REPLACE "([a-z0-9_]+)<<<" "emulated_cuda::launch(\\1, " text "${text}")
    string(REGEX REPLACE ">>>\\(" ", " text "${text}")
    set(${variable} "${text}" PARENT_SCOPE)
endfunction()

set(kernels ${DFLASH_DIR}/gdn/cuda/gdn_tree_cuda.cu)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernels})
file(READ ${kernels} kernels)
emulated_cuda_text(kernels "${kernels}")
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/cuda/gdn_tree_cuda.inc CONTENT "${kernels}")

# Mutants: each of the barriers removed, and less shared memory than needed.
set(mutants "")
set(list "")
set(head "")
set(tail "${kernels}")
set(n_barriers 0)
set(barrier "__syncthreads();")
string(LENGTH ${barrier} length)
string(FIND "${tail}" ${barrier} at)
while(at GREATER_EQUAL 0)
    math(EXPR n_barriers "${n_barriers} + 1")
    math(EXPR behind "${at} + ${length}")
    string(SUBSTRING "${tail}" 0 ${at} before)
    string(SUBSTRING "${tail}" ${behind} -1 tail)
    string(APPEND mutants "namespace without_barrier_${n_barriers} {\n${head}${before}${tail}}\n")
    string(APPEND list "{ \"without-barrier-${n_barriers}\", without_barrier_${n_barriers}::dflash_cuda_gdn_tree },\n")
    string(APPEND head "${before}${barrier}")
    string(FIND "${tail}" ${barrier} at)
endwhile()
string(REPLACE "GDN_SHARED_FLOATS(args.T)" "(GDN_SHARED_FLOATS(args.T) - 1)" short "${kernels}")
string(APPEND mutants "namespace short_shared {\n${short}}\n")
string(APPEND list "{ \"short-shared\", short_shared::dflash_cuda_gdn_tree },\n")
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/cuda/gdn_tree_cuda_mutants.inc
    CONTENT "${mutants}static const mutant MUTANTS[] = {\n${list}};\n")

add_library(emulated_cuda STATIC cuda/emulated_cuda.cpp)
target_include_directories(emulated_cuda PUBLIC cuda ${CMAKE_CURRENT_BINARY_DIR}/cuda)
target_link_libraries(emulated_cuda PUBLIC checked)

dflash_programs(built/cuda emulated_cuda built)
dflash_tests(built/cuda)
dflash_whole_test(gdn_cuda all)
dflash_whole_test(few_rows all)
foreach(name test_few_rows test_few_rows_graph test_top_k_cuda)
    target_compile_options(${name} PRIVATE -Wno-unknown-pragmas -Wno-unused-function)   # unroll; parts of headers
endforeach()

# Every missing barrier is detected, and so are accesses past the end of shared memory.
if(n_barriers EQUAL 0)
    message(FATAL_ERROR "no barriers in the CUDA kernels: what marks them?")
endif()
foreach(n RANGE 1 ${n_barriers})
    dflash_outcome(gdn_cuda_without_barrier_${n} STATUS 1 OUTPUT "results differ" COMMAND test_gdn_cuda without-barrier-${n})
endforeach()
if(sanitizers)
    dflash_outcome(gdn_cuda_short_shared STATUS "[1-9][0-9]*|Subprocess aborted|Child aborted" OUTPUT ""
        COMMAND test_gdn_cuda short-shared)
endif()
