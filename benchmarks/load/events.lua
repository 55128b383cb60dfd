-- Events of one study: each thread's ids are its own, and unlike those of another run.
-- Arguments: the path, how many events a request carries, the pause between requests in ms.
local threads = 0

function setup(thread)
   thread:set("number", threads)
   threads = threads + 1
end

function init(arguments)
   path, size, pause = arguments[1], tonumber(arguments[2]), tonumber(arguments[3])
   prefix = arguments[4] .. "-" .. number .. "-"
   sent = 0
   headers = { ["Content-Type"] = "application/json" }
end

local function event()
   sent = sent + 1
   local action = (sent % 3 == 0) and "small" or "large"
   return string.format('{"id":"%s%d","action":"%s","propensity":0.5,"reward":%d}',
      prefix, sent, action, sent % 2)
end

function delay() -- of any length around the pause: clients do not march in step
   return pause > 0 and math.random(0, 2 * pause) or 0
end

function request()
   if size == 1 then
      return wrk.format("POST", path, headers, event())
   end
   local events = {}
   for i = 1, size do
      events[i] = event()
   end
   return wrk.format("POST", path, headers, '{"events":[' .. table.concat(events, ",") .. "]}")
end
