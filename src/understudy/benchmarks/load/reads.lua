-- The same GET again and again. Arguments: the path, the pause between requests in ms.
function init(arguments)
   path, pause = arguments[1], tonumber(arguments[2])
end

function delay()
   return pause
end

function request()
   return wrk.format("GET", path)
end
