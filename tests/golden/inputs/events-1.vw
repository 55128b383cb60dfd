shared |user age:20
|item number:1
|item number:2
0:0.874:0.2 |item number:3

shared |user age:27
|item number:1
|item number:2
0:0.65:0.2 |item number:3

shared |user age:34
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:41
|item number:1
0:0.139:0.3 |item number:2
|item number:3

shared |user age:48
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:55
|item number:1
|item number:2
0:0.942:0.2 |item number:3

shared |user age:22
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:29
|item number:1
0:0.827:0.3 |item number:2
|item number:3

shared |user age:36
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:43
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:50
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:57
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:24
0:0.12:0.5 |item number:1
|item number:2
|item number:3

shared |user age:31
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:38
|item number:1
|item number:2
0:0.138:0.2 |item number:3

shared |user age:45
|item number:1
0:0.87:0.3 |item number:2
|item number:3

shared |user age:52
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:59
|item number:1
|item number:2
0:0.947:0.2 |item number:3

shared |user age:26
0:0.895:0.5 |item number:1
|item number:2
|item number:3

shared |user age:33
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:40
|item number:1
|item number:2
0:0.954:0.2 |item number:3

shared |user age:47
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:54
|item number:1
0:1.0:0.3 |item number:2
|item number:3

shared |user age:21
|item number:1
0:0.304:0.3 |item number:2
|item number:3

shared |user age:28
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:35
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:42
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:49
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:56
0:0.034:0.5 |item number:1
|item number:2
|item number:3

shared |user age:23
|item number:1
0:1.0:0.3 |item number:2
|item number:3

shared |user age:30
0:0.503:0.5 |item number:1
|item number:2
|item number:3

shared |user age:37
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:44
0:0.578:0.5 |item number:1
|item number:2
|item number:3

shared |user age:51
|item number:1
|item number:2
0:0.254:0.2 |item number:3

shared |user age:58
0:0.542:0.5 |item number:1
|item number:2
|item number:3

shared |user age:25
|item number:1
0:0.0:0.3 |item number:2
|item number:3

