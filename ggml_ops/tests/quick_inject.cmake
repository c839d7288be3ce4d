# inject.cmake for a build whose speed does not matter: code that computes no tensors is compiled as fast as possible.

include(${CMAKE_CURRENT_LIST_DIR}/../inject.cmake)

function(dflash_quick_targets)
    foreach(target dflash cpp-httplib)
        target_compile_options(${target} PRIVATE -O0)
    endforeach()
endfunction()

cmake_language(DEFER CALL dflash_quick_targets)
