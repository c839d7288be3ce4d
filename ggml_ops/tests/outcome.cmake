# cmake -DSTATUS=1 -DOUTPUT=regex -P outcome.cmake -- program argument...: fails unless the program ends with this
# status and its output matches. If a signal ended the program, its status is the signal's name: "Subprocess aborted".

foreach(at RANGE ${CMAKE_ARGC})
    if(DEFINED command)
        list(APPEND command "${CMAKE_ARGV${at}}")
    elseif("${CMAKE_ARGV${at}}" STREQUAL "--")
        set(command "")
    endif()
endforeach()
execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("${output}")
if(NOT status MATCHES "^(${STATUS})$")
    message(FATAL_ERROR "ended with '${status}', not '${STATUS}'")
endif()
if(NOT output MATCHES "${OUTPUT}")
    message(FATAL_ERROR "printed nothing like '${OUTPUT}'")
endif()
