1 3 2:1.0:0.3 |user age:20 |item price:0
2:1.0:0.3 |user age:27 new |item price:1
2:0.872:0.3 |user age:34 |item price:2
2 3 1:1.0:0.5 |user age:41 new |item price:3
2:0.557:0.3 |user age:48 |item price:4
2:cheap:0.3 |user age:30
1 2 3:0.0:0.2 |user age:22 |item price:1
1:0.107:0.5 |user age:29 new |item price:2
2:0.0:0.3 |user age:36 |item price:3
no label | age:3
2:0.674:0.3 |user age:50 |item price:0
1:0.0:0.5 |user age:57 new |item price:1
2 3 1:1.0:0.5 |user age:24 |item price:2
2:1.0:0.3 |user age:31 new |item price:3
2:1.0:0.3 |user age:38 |item price:4
1 2 3:0.0:0.2 |user age:45 new |item price:0
2:0.0:0.3 |user age:52 |item price:1
1:0.335:0.5 |user age:59 new |item price:2
1 3 2:0.541:0.3 |user age:26 |item price:3
2:0.0:0.3 |user age:33 new |item price:4
2:1.0:0.3 |user age:40 |item price:0
1 3 2:1.0:0.3 |user age:47 new |item price:1
2:0.0:0.3 |user age:54 |item price:2
1:1.0:0.5 |user age:21 new |item price:3
1 2 3:0.0:0.2 |user age:28 |item price:4
1:1.0:0.5 |user age:35 new |item price:0
2:0.336:0.3 |user age:42 |item price:1
2 3 1:0.833:0.5 |user age:49 new |item price:2
1:1.0:0.5 |user age:56 |item price:3
1:1.0:0.5 |user age:23 new |item price:4
2 3 1:1.0:0.5 |user age:30 |item price:0
1:1.0:0.5 |user age:37 new |item price:1
1:0.0:0.5 |user age:44 |item price:2
1 2 3:0.3:0.2 |user age:51 new |item price:3
1:0.221:0.5 |user age:58 |item price:4
2:0.0:0.3 |user age:25 new |item price:0
