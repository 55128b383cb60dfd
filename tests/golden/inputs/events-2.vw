shared |user age:20
|item number:1
0:1.0:0.3 |item number:2
|item number:3

shared |user age:27
|item number:1
0:1.0:0.3 |item number:2
|item number:3

shared |user age:34
|item number:1
0:0.872:0.3 |item number:2
|item number:3

shared |user age:41
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:48
|item number:1
0:0.557:0.3 |item number:2
|item number:3

shared |user age:55
0:0.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:22
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:29
0:0.107:0.5 |item number:1
|item number:2
|item number:3

shared |user age:36
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:43
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:50
|item number:1
0:0.674:0.3 |item number:2
|item number:3

shared |user age:57
0:0.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:24
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:31
|item number:1
0:1.0:0.3 |item number:2
|item number:3

shared |user age:38
|item number:1
0:1.0:0.3 |item number:2
|item number:3

shared |user age:45
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:52
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:59
0:0.335:0.5 |item number:1
|item number:2
|item number:3

shared |user age:26
|item number:1
0:0.541:0.3 |item number:2
|item number:3

shared |user age:33
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:40
|item number:1
0:1.0:0.3 |item number:2
|item number:3

shared |user age:47
|item number:1
0:1.0:0.3 |item number:2
|item number:3

shared |user age:54
|item number:1
0:0.0:0.3 |item number:2
|item number:3

shared |user age:21
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:28
|item number:1
|item number:2
0:0.0:0.2 |item number:3

shared |user age:35
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:42
|item number:1
0:0.336:0.3 |item number:2
|item number:3

shared |user age:49
0:0.833:0.5 |item number:1
|item number:2
|item number:3

shared |user age:56
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:23
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:30
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:37
0:1.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:44
0:0.0:0.5 |item number:1
|item number:2
|item number:3

shared |user age:51
|item number:1
|item number:2
0:0.3:0.2 |item number:3

shared |user age:58
0:0.221:0.5 |item number:1
|item number:2
|item number:3

shared |user age:25
|item number:1
0:0.0:0.3 |item number:2
|item number:3

