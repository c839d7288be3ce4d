# Programs for machines with a device but without a compiler (`dflash-local build --out`): without sanitizers; libraries
# are found with LD_LIBRARY_PATH.

foreach(name ggml ggml-cpu ggml-base)
    find_library(path_of_${name} ${name} PATHS ${DFLASH_LIBRARIES} NO_DEFAULT_PATH REQUIRED)
endforeach()
set(CMAKE_SKIP_RPATH ON)

function(dflash_device_program name source)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE common ${path_of_ggml} ${path_of_ggml-cpu} ${path_of_ggml-base})
    # The device's machine has the backend's own libraries (the driver's, cuBLAS).
    target_link_options(${name} PRIVATE -Wl,--allow-shlib-undefined -Wl,-rpath-link,${DFLASH_LIBRARIES})
endfunction()

dflash_device_program(test_gdn_ops built/ops/test_gdn_ops.cpp)
dflash_device_program(test-backend-ops ${LLAMA_SOURCE}/tests/test-backend-ops.cpp)
target_compile_options(test-backend-ops PRIVATE -w)
