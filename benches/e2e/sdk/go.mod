module capd-e2e-sdk

go 1.22

require capd v0.0.0

replace capd => ../../../sdk/go
