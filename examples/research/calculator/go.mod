module calculator

go 1.22

require capd v0.0.0

replace capd => ../../../sdk/go
