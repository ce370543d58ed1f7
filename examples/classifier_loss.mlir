module {
  func.func @main(%w1: tensor<64x128xf32>, %b1: tensor<128xf32>, %w2: tensor<128x10xf32>, %x: tensor<256x64xf32>, %labels: tensor<256x10xf32>) -> (tensor<f32>) {
    %0 = "stablehlo.dot_general"(%x, %w1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<256x64xf32>, tensor<64x128xf32>) -> tensor<256x128xf32> loc(#loc2)
    %1 = "stablehlo.broadcast_in_dim"(%b1) <{broadcast_dimensions = array<i64: 1>}> : (tensor<128xf32>) -> tensor<256x128xf32> loc(#loc2)
    %2 = "stablehlo.add"(%0, %1) : (tensor<256x128xf32>, tensor<256x128xf32>) -> tensor<256x128xf32> loc(#loc2)
    %3 = "stablehlo.tanh"(%2) : (tensor<256x128xf32>) -> tensor<256x128xf32> loc(#loc2)
    %4 = "stablehlo.dot_general"(%3, %w2) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<256x128xf32>, tensor<128x10xf32>) -> tensor<256x10xf32> loc(#loc2)
    %5 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %7 = "stablehlo.reduce"(%4, %5) <{dimensions = array<i64: 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %6 = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %6 : tensor<f32>
    }) : (tensor<256x10xf32>, tensor<f32>) -> tensor<256xf32> loc(#loc4)
    %8 = "stablehlo.reshape"(%7) : (tensor<256xf32>) -> tensor<256x1xf32> loc(#loc4)
    %9 = "stablehlo.broadcast_in_dim"(%8) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<256x1xf32>) -> tensor<256x10xf32> loc(#loc6)
    %10 = "stablehlo.subtract"(%4, %9) : (tensor<256x10xf32>, tensor<256x10xf32>) -> tensor<256x10xf32> loc(#loc6)
    %11 = "stablehlo.exponential"(%10) : (tensor<256x10xf32>) -> tensor<256x10xf32> loc(#loc6)
    %12 = "stablehlo.constant"() <{value = dense<-0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %14 = "stablehlo.reduce"(%11, %12) <{dimensions = array<i64: 1>}> ({
    ^bb0(%a_0: tensor<f32>, %b_0: tensor<f32>):
      %13 = "stablehlo.add"(%a_0, %b_0) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %13 : tensor<f32>
    }) : (tensor<256x10xf32>, tensor<f32>) -> tensor<256xf32> loc(#loc6)
    %15 = "stablehlo.reshape"(%14) : (tensor<256xf32>) -> tensor<256x1xf32> loc(#loc6)
    %16 = "stablehlo.log"(%15) : (tensor<256x1xf32>) -> tensor<256x1xf32> loc(#loc6)
    %17 = "stablehlo.add"(%16, %8) : (tensor<256x1xf32>, tensor<256x1xf32>) -> tensor<256x1xf32> loc(#loc6)
    %18 = "stablehlo.broadcast_in_dim"(%17) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<256x1xf32>) -> tensor<256x10xf32> loc(#loc8)
    %19 = "stablehlo.subtract"(%18, %4) : (tensor<256x10xf32>, tensor<256x10xf32>) -> tensor<256x10xf32> loc(#loc8)
    %20 = "stablehlo.multiply"(%labels, %19) : (tensor<256x10xf32>, tensor<256x10xf32>) -> tensor<256x10xf32> loc(#loc8)
    %21 = "stablehlo.constant"() <{value = dense<-0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %23 = "stablehlo.reduce"(%20, %21) <{dimensions = array<i64: 1>}> ({
    ^bb0(%a_1: tensor<f32>, %b_1: tensor<f32>):
      %22 = "stablehlo.add"(%a_1, %b_1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %22 : tensor<f32>
    }) : (tensor<256x10xf32>, tensor<f32>) -> tensor<256xf32> loc(#loc8)
    %24 = "stablehlo.constant"() <{value = dense<-0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %26 = "stablehlo.reduce"(%23, %24) <{dimensions = array<i64: 0>}> ({
    ^bb0(%a_2: tensor<f32>, %b_2: tensor<f32>):
      %25 = "stablehlo.add"(%a_2, %b_2) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %25 : tensor<f32>
    }) : (tensor<256xf32>, tensor<f32>) -> tensor<f32> loc(#loc8)
    %27 = "stablehlo.constant"() <{value = dense<2.560000e+02> : tensor<f32>}> : () -> tensor<f32>
    %28 = "stablehlo.divide"(%26, %27) : (tensor<f32>, tensor<f32>) -> tensor<f32> loc(#loc8)
    return %28 : tensor<f32>
  }
}
#loc1 = loc("/tmp/nb/make.py":4:0)
#loc2 = loc("loss"(#loc1))
#loc3 = loc("/tmp/nb/make.py":5:0)
#loc4 = loc("loss"(#loc3))
#loc5 = loc("/tmp/nb/make.py":6:0)
#loc6 = loc("loss"(#loc5))
#loc7 = loc("/tmp/nb/make.py":7:0)
#loc8 = loc("loss"(#loc7))
