module capd

go 1.22
