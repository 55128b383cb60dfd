-- The same GET again and again. Arguments: the path, the pause between requests in ms.
function init(arguments)
   path, pause = arguments[1], tonumber(arguments[2])
end

function delay() -- of any length around the pause: clients do not march in step
   return pause > 0 and math.random(0, 2 * pause) or 0
end

function request()
   return wrk.format("GET", path)
end
